"""A verifier as the reward function of another trainer: TRL, verl, and rubric functions of prime-rl and the like.

"No verdict" is passed on if the other trainer can express it: as None in TRL, which leaves it out of the sum. verl and
rubrics accept only numbers, so there an `error` raises; it must not count as a wrong answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from grpo_verifiers.verdict import Verdict, floored
from grpo_verifiers.verifier import Sample, Verifier


class NoVerdict(RuntimeError):
    """The verifier failed on a completion, and the caller's protocol cannot express "no verdict"."""


def completion_text(completion: Any) -> str:
    """The text of a completion, plain or conversational (`[{"role", "content"}, …]`, last turn)."""
    if isinstance(completion, str):
        return completion
    if not completion:
        return ""
    content = completion[-1]["content"]
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)


def as_reward(verifier: Verifier, name: str | None = None) -> Callable[..., list[float | None]]:
    """`f(completions=[B], **columns) -> [B]` scores for TRL's `reward_funcs`; None where there is no verdict.

    No answer and an exceeded limit get the score that `floored` computes from the samples of the same prompt, which
    must be consecutive.

    Columns named in `verifier.columns` must reach the function as lists of length B, as TRL passes them. Equal rows,
    as the samples of one prompt are, are compiled once.
    """

    def reward(completions: Sequence[Any], prompts: Sequence[Any] | None = None, **columns: Any) -> list[float | None]:
        size = len(completions)
        lists = {
            key: value for key, value in columns.items() if (isinstance(value, list | tuple) and len(value) == size)
        }
        texts = [completion_text(prompt) for prompt in prompts] if prompts is not None else [""] * size
        golds: list[Any] = []
        groups: list[int] = []  # the group of each sample: consecutive samples with the same prompt and data row
        last: dict[str, Any] | None = None
        for i in range(size):
            row = {key: value[i] for key, value in lists.items()}
            is_same = last is not None and row == last
            golds.append(golds[-1] if is_same else verifier.compile(row))
            goes_on = is_same and texts[i] == texts[i - 1]
            groups.append((groups[-1] if groups else 0) + (not goes_on))
            last = row
        samples = [Sample(completion_text(c), g, p) for c, g, p in zip(completions, golds, texts, strict=True)]
        found = zip(groups, verifier.judge(samples), strict=True)
        return [
            verdict.score
            for _, group in groupby(found, key=itemgetter(0))
            for verdict in floored([verdict for _, verdict in group], verifier.low)
        ]

    reward.__name__ = name or getattr(verifier, "kind", "") or type(verifier).__name__
    return reward


def as_verl(verifier: Verifier) -> Callable[..., dict[str, Any]]:
    """`compute_score(data_source, solution_str, ground_truth, extra_info)` for verl: `score`, `acc` and the verdict."""

    def compute_score(
        data_source: str,
        solution_str: str,
        ground_truth: object,
        extra_info: Mapping[str, Any] | None = None,
        **_: object,
    ) -> dict[str, Any]:
        verdict = verifier.verify(solution_str, {**(extra_info or {}), "answer": ground_truth})
        return {
            "score": _score(verdict),
            "acc": float(verdict.score == 1.0),
            "outcome": verdict.outcome.value,
            "pred": verdict.answer or "",
        }

    return compute_score


def as_rubric(verifier: Verifier, name: str | None = None) -> Callable[..., Awaitable[float]]:
    """`async f(completion, answer, info, **_) -> float`, the shape of rubric functions; runs off the event loop."""

    async def rubric(
        completion: object, answer: object = "", info: Mapping[str, Any] | None = None, prompt: object = "", **_: object
    ) -> float:
        import asyncio

        row = {**(info if isinstance(info, Mapping) else {}), "answer": answer}
        text = completion_text(completion)
        return _score(await asyncio.to_thread(verifier.verify, text, row, completion_text(prompt)))

    rubric.__name__ = name or getattr(verifier, "kind", "") or type(verifier).__name__
    return rubric


def _score(verdict: Verdict) -> float:
    if verdict.score is None:
        raise NoVerdict(f"{verdict.reason}: {verdict.detail}".rstrip(": "))
    return verdict.score
