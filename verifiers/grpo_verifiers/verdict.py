"""A verdict on one completion. "No verdict" (outcome `error`) is never a zero: its score is None."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from grpo_verifiers.text import printable

LARGEST = 1e50
"""Largest reward or weight that can be weighted, squared and summed in double precision."""
SKIPPED = "skipped"
"""Reason of an `error` with which a function declares, as in TRL, that it does not judge the sample."""


class Outcome(StrEnum):
    """The result of one verifier for one completion."""

    RIGHT = "right"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"  # nothing to extract
    OVER_LIMIT = "over_limit"  # the completion itself exceeded a time, memory or size limit
    ERROR = "error"  # the verifier or its sandbox failed: no verdict


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome, score (a finite number; None for `error`), the extracted answer, a reason code, and the seconds it took.

    Verifiers of ours score in [0, 1]; a user's function may return any finite number. `reason` is a short stable code such as
    `equal:rational` or `no_box`; `detail` a sentence for people. Both may come from foreign code, and are made printable here.
    `way` is how a program was judged: `values`, `wall` or `trusted`.
    """

    outcome: Outcome
    score: float | None
    answer: str | None = None
    reason: str = ""
    seconds: float = 0.0
    detail: str = ""
    way: str = ""

    def __post_init__(self) -> None:
        if not (self.reason.isprintable() and self.detail.isprintable()):
            object.__setattr__(self, "reason", printable(self.reason))
            object.__setattr__(self, "detail", printable(self.detail))
        if self.outcome is Outcome.ERROR:
            if self.score is not None:
                raise ValueError("an error carries no score")
        elif self.score is None or not math.isfinite(self.score):
            raise ValueError(f"score {self.score!r} is not a finite number")

    def as_json(self) -> dict[str, Any]:
        """The shape of `verdicts[name]` in sample files."""
        out: dict[str, Any] = {
            "outcome": self.outcome.value,
            "score": self.score,
            "extracted": self.answer,
            "reason": self.reason,
            "seconds": round(self.seconds, 6),
        }
        out |= {name: said for name, said in (("detail", self.detail), ("way", self.way)) if said}
        return out


def right(answer: str | None = None, reason: str = "", seconds: float = 0.0, score: float = 1.0) -> Verdict:
    """A right answer."""
    return Verdict(Outcome.RIGHT, score, answer, reason, seconds)


def wrong(
    answer: str | None = None, reason: str = "", seconds: float = 0.0, score: float = 0.0, detail: str = ""
) -> Verdict:
    """A wrong answer; `score` may be above 0 where a verifier gives partial credit."""
    return Verdict(Outcome.WRONG, score, answer, reason, seconds, detail)


def no_answer(reason: str, seconds: float = 0.0) -> Verdict:
    """Nothing could be extracted."""
    return Verdict(Outcome.NO_ANSWER, 0.0, None, reason, seconds)


def over_limit(reason: str, answer: str | None = None, seconds: float = 0.0) -> Verdict:
    """The completion burst a limit."""
    return Verdict(Outcome.OVER_LIMIT, 0.0, answer, reason, seconds)


def error(reason: str, detail: str = "", seconds: float = 0.0) -> Verdict:
    """The verifier failed: no verdict."""
    return Verdict(Outcome.ERROR, None, None, reason, seconds, detail)


def floored(group: Sequence[Verdict], low: float | None) -> list[Verdict]:
    """Verdicts of one verifier on the samples of one prompt, with scores for `no_answer` and `over_limit`.

    That score is `low`, the least score that the verifier can give; if it is unknown (None), the lowest score of the
    group, but at most 0. So a completion that exceeds a limit never gets more than a wrong one, and a policy cannot
    gain by it.
    """
    if low == 0.0:
        return list(group)
    unpaid = [v.outcome in (Outcome.NO_ANSWER, Outcome.OVER_LIMIT) for v in group]
    if not any(unpaid):
        return list(group)
    floor = min([0.0, *(v.score for v in group if v.score is not None)]) if low is None else low
    return [
        replace(v, score=floor) if is_unpaid and v.score != floor else v
        for v, is_unpaid in zip(group, unpaid, strict=True)
    ]
