"""A verifier as a reward function of plain TRL (and of anything with the same calling convention)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grpo_verifiers.verifier import Sample, Verifier


def completion_text(completion: Any) -> str:
    """The text of a completion, plain or conversational (`[{"role", "content"}, …]`, last assistant turn)."""
    if isinstance(completion, str):
        return completion
    return str(completion[-1]["content"])


def as_reward(verifier: Verifier, name: str | None = None) -> Callable[..., list[float | None]]:
    """`f(completions=[B], **columns) -> [B]` scores in [0, 1]; None where there is no verdict, which TRL leaves out.

    Columns named in `verifier.columns` must reach the function as lists of length B, as TRL passes them.
    """

    def reward(completions: Sequence[Any], prompts: Sequence[Any] | None = None, **columns: Any) -> list[float | None]:
        rows = [{name: columns[name][i] for name in columns if _is_column(columns[name], len(completions))} for i in range(len(completions))]
        samples = [Sample(completion_text(c), verifier.compile(row)) for c, row in zip(completions, rows, strict=True)]
        return [verdict.score for verdict in verifier.judge(samples)]

    reward.__name__ = name or type(verifier).__name__
    return reward


def _is_column(value: Any, length: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == length
