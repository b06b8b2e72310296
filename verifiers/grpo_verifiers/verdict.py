"""A verdict on one completion. "No verdict" (outcome `error`) is never a zero: its score is None."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What became of one completion under one verifier."""

    RIGHT = "right"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"  # nothing to extract
    OVER_LIMIT = "over_limit"  # the completion itself burst a time, memory or size limit
    ERROR = "error"  # the verifier or its sandbox failed: no verdict


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome, score in [0, 1] (None for `error`), the extracted answer, a reason code, and the seconds it took.

    `reason` is a short stable code such as `equal:rational` or `no_box`; `detail` a sentence for people.
    """

    outcome: Outcome
    score: float | None
    answer: str | None = None
    reason: str = ""
    seconds: float = 0.0
    detail: str = ""

    def __post_init__(self) -> None:
        if self.outcome is Outcome.ERROR:
            if self.score is not None:
                raise ValueError("an error carries no score")
        elif self.score is None or not math.isfinite(self.score) or not 0.0 <= self.score <= 1.0:
            raise ValueError(f"score {self.score!r} is not in [0, 1]")
        elif self.outcome is Outcome.OVER_LIMIT and self.score != 0.0:
            raise ValueError("over_limit scores 0, or a policy learns to hide in it")

    def as_json(self) -> dict[str, Any]:
        """The shape of `verdicts[name]` in sample files."""
        out: dict[str, Any] = {
            "outcome": self.outcome.value,
            "score": self.score,
            "extracted": self.answer,
            "reason": self.reason,
            "seconds": round(self.seconds, 6),
        }
        if self.detail:
            out["detail"] = self.detail
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
