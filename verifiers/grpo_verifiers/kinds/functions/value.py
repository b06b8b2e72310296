"""Converts the return value of a reward function into a verdict: any finite number is the reward itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

from grpo_verifiers.verdict import LARGEST, Outcome, Verdict

RETURNED_NONE = "returned_none"
"""Reason of a None: the host decides whether the completion or the function is to blame."""

Plain = tuple[str, float | None, str | None, str, str]
"""outcome, score, answer, reason, detail: a verdict as JSON can hold it."""

MOST_REASON, MOST_DETAIL = 80, 2000
"""Characters kept of a verdict's words. Reasons name metrics."""

_KEYS = ("score", "outcome", "answer", "reason", "detail")
_FORMS = "a finite number, a bool, None, a dict with `score`, or a Verdict"


class BadReturn(Exception):
    """The function returned something that is no verdict: this is the function's fault, never the completion's."""


@dataclass(frozen=True, slots=True)
class ReturnReader:
    """Rules for the return values of one function. `range` are the declared bounds; `ignores`: unknown keys of a dict
    are ignored."""

    name: str
    place: str
    right_at: float = 1.0
    range: tuple[float, float] | None = None
    ignores: bool = False

    def read(self, value: object) -> Plain:
        """The verdict for a return value.

        Raises:
            BadReturn: the value is no verdict; the message holds the function's place, the value and the remedy.
        """
        if isinstance(value, Verdict):
            return self._of_outcome(value.outcome, value.score, value.answer, value.reason, value.detail)
        if value is None:
            return (Outcome.NO_ANSWER.value, 0.0, None, RETURNED_NONE, "")
        if not isinstance(value, dict):
            number = self.score(value)
            return (self._outcome(number).value, number, None, "function", "")
        unknown = [key for key in value if key not in _KEYS]
        if unknown and not self.ignores:
            raise self.bad(f"a dict with the key {unknown[0]!r}", f"a dict may hold {', '.join(_KEYS)}")
        if "outcome" not in value and "score" not in value:
            raise self.bad(f"a dict with the keys {sorted(map(str, value))}", "a dict needs `score` or `outcome`")
        score = None if value.get("score") is None else self.score(value["score"])
        if "outcome" not in value and score is None:
            raise self.bad("a dict whose `score` is None", "say `outcome` where there is no score")
        try:
            named = value.get("outcome") if not self.ignores else None
            outcome = self._outcome(score or 0.0) if named is None else Outcome(named)
        except ValueError:
            raise self.bad(f"the outcome {value['outcome']!r}", f"known: {', '.join(Outcome)}") from None
        answer = value.get("answer", value.get("pred") if self.ignores else None)
        reason, detail = (str(value.get(key, "")) for key in ("reason", "detail"))
        return self._of_outcome(outcome, score, None if answer is None else str(answer), reason, detail)

    def _of_outcome(self, outcome: Outcome, score: float | None, answer: str | None, reason: str, detail: str) -> Plain:
        if outcome is Outcome.ERROR:
            score = None
        elif outcome is Outcome.OVER_LIMIT:
            score = 0.0  # its score depends on the other samples, see `floored`
        elif score is None:
            score = self.right_at if outcome is Outcome.RIGHT else 0.0
        else:
            score = self.score(score)
        return (outcome.value, score, answer, reason[:MOST_REASON] or "function", detail[:MOST_DETAIL])

    def _outcome(self, score: float) -> Outcome:
        return Outcome.RIGHT if score >= self.right_at else Outcome.WRONG

    def score(self, value: object) -> float:
        """A finite number inside the declared range: bool, int, float, Fraction, Decimal, or a numpy or torch scalar."""
        score = number_of(value)
        if score is None:
            raise self.bad(f"{shown(value)} ({type(value).__name__})", f"return {_FORMS}")
        if not math.isfinite(score):
            mend = f"return a finite number, of {LARGEST:g} at most, or None where there is no verdict"
            raise self.bad(shown(value), mend)
        if self.range is not None and not self.range[0] <= score <= self.range[1]:
            low, high = self.range
            raise self.bad(shown(value), f"the option `range` says [{low:g}, {high:g}]: change one of the two")
        return score

    def bad(self, what: str, mend: str) -> BadReturn:
        """The error for an invalid value."""
        where = f" ({self.place})" if self.place else ""
        return BadReturn(f"`{self.name}`{where} returned {what}; {mend}")


def number_of(value: object) -> float | None:
    """The float of a bool, int, float, Fraction, Decimal, or a scalar of numpy or torch; infinite beyond `LARGEST`, None of anything
    else."""
    plain: Any = value
    if not isinstance(value, str | bytes | Real | Decimal) and hasattr(value, "item"):
        try:
            plain = value.item()
        except (TypeError, ValueError, RuntimeError):  # more than one element
            return None
    if not isinstance(plain, Real | Decimal):
        return None
    try:
        number = float(plain)
    except OverflowError:
        return math.inf
    return math.copysign(math.inf, number) if abs(number) > LARGEST else number


def listed(value: object) -> list[Any] | None:
    """The values of a list, a tuple, or an array of numpy, torch or pandas; None of anything else."""
    if isinstance(value, list | tuple):
        return list(value)
    plain = value.tolist() if hasattr(value, "tolist") else None
    return plain if isinstance(plain, list) else None


def shown(value: object) -> str:
    """A value in a message."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - an object of the user's may even fail to print
        text = "a value"
    return text if len(text) <= 80 else f"{text[:79]}…"
