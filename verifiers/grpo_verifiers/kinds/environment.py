"""`environment`: the outcome of an episode in its environment, as a verdict next to those of other verifiers.

It judges nothing itself: the score comes with the sample, from the recipe's environment (`environment:`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from grpo_verifiers.answers import Example
from grpo_verifiers.verdict import LARGEST, Outcome, Verdict, error, right, wrong
from grpo_verifiers.verifier import Played, Sample, Verifier

NAME = "environment"
"""Its name where the recipe gives none."""


@dataclass(frozen=True)
class EnvironmentOptions:
    """Options of `environment`."""

    right_at: float = 1.0
    """Outcome from which an episode counts as right (in a recipe `verify.NAME.right_at`)."""


class EnvironmentVerifier(Verifier):
    """The outcome of an episode: what the world's `score` says, else the sum of its rewards; any finite number."""

    Options: ClassVar[type] = EnvironmentOptions
    options: EnvironmentOptions
    columns = ()
    reads_text = False
    low = None

    def compile(self, row: Mapping[str, Any]) -> Played | bool:
        """True for any row, which only the environment reads; for the recorded line of an episode, its outcome."""
        return recorded(row) or True

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order; an error where a sample was no episode, or its world gave no verdict."""
        return [self._verdict(sample) for sample in samples]

    def _verdict(self, sample: Sample) -> Verdict:
        played = sample.played or sample.gold
        if not isinstance(played, Played):
            return error("no_episode", "this text was not made in an environment")
        if played.outcome is None:
            return error(played.reason or "no_score", played.problem)
        if played.over_limit:
            return Verdict(Outcome.OVER_LIMIT, played.outcome, None, played.reason, 0.0, played.problem)
        if abs(played.outcome) > LARGEST:
            return error("too_large", f"an outcome of {played.outcome:g}, beyond {LARGEST:g}")
        is_right = played.outcome >= self.options.right_at
        return right(score=played.outcome) if is_right else wrong(score=played.outcome)

    @classmethod
    def examples(cls) -> list[Example]:
        return [Example("north", {}, "a text without an episode has no verdict")]


def is_episode(line: Mapping[str, Any]) -> bool:
    """Whether the line of a sample file is that of an episode: it has turns."""
    turns = line.get("turns")
    return isinstance(turns, list) and bool(turns) and all(isinstance(turn, Mapping) for turn in turns)


def recorded(line: Mapping[str, Any], name: str = NAME) -> Played | None:
    """The outcome recorded in the line of an episode for the verifier of this name; None if the line is no episode.

    The episode is not played again: without a recorded outcome there is no verdict.
    """
    if not is_episode(line):
        return None
    verdicts = line.get("verdicts")
    found = verdicts.get(name) if isinstance(verdicts, Mapping) else None
    if not isinstance(found, Mapping):
        return Played(None, "not_recorded", f"the line has turns, and no outcome of them under `verdicts.{name}`")
    score = found.get("score")
    if isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score):
        over_limit = found.get("outcome") == Outcome.OVER_LIMIT.value
        why = (str(found.get("reason", "")), str(found.get("detail", ""))) if over_limit else ("", "")
        return Played(float(score), *why, over_limit)
    return Played(None, str(found.get("reason", "")), str(found.get("detail", "")))
