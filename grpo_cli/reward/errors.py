"""Samples that went without a verdict: why, and what to tell the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpo_verifiers.verdict import Verdict

ERRORS_HINT = (
    "a verifier or its sandbox fails (tracebacks are in train.log); `stop.verifier_errors` sets the limit"
)


def why_no_verdict(judged: Iterable[Mapping[str, Verdict]]) -> str:
    """The first verifier that gave no verdict, with its reason."""
    for verdicts in judged:
        for name, verdict in verdicts.items():
            if verdict.score is None:
                return f"`{name}`: {verdict.reason}: {verdict.detail}"
    return "see the samples"
