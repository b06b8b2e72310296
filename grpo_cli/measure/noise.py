"""How far a scorer is from itself: the same answers scored twice, and the floor under which a spread of a group is its noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_cli.data.split import Split
from grpo_cli.recipe.kinds import kind_class
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.judge import Judge
from grpo_cli.reward.pay import RewardRule
from grpo_cli.reward.tasks import RowTasks
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Outcome, Verdict

ANSWERS = 64
"""Answers that are scored a second time."""
SHARE = 0.95
"""Share of groups of equal answers whose spread stays below the floor."""


@dataclass(frozen=True, slots=True)
class ScorerNoise:
    """The standard deviation of a scorer on one answer, in units of the reward, from `n` answers scored twice."""

    sigma: float
    n: int

    def floor(self, group: int, ddof: int = 1) -> float:
        """The deviation that 95 of 100 groups of equal answers stay below: 1.614, 1.418, 1.291 sigma in groups of 4, 8, 16."""
        from scipy.stats import chi2

        return self.sigma * math.sqrt(float(chi2.ppf(SHARE, group - 1)) / (group - ddof))

    def as_json(self) -> dict[str, Any]:
        """The object in `--json` and in `run.json`."""
        return {"sigma": self.sigma, "n": self.n}


def is_noisy(recipe: Recipe) -> bool:
    """Whether what is paid for an answer may be another sum the second time: a floor is asked of that, or a judge is."""
    asked = (kind_class(one.kind).is_noisy for one in recipe.verify.values() if one.weight)
    return recipe.train.std_floor == "noise" or any(asked)


def scored_twice(
    recipe: Recipe, base: Path | None, rows: Split, records: Sequence[SampleRecord]
) -> ScorerNoise | None:
    """The noise of what the outcome pays, over at most 64 of these judged answers; None where none was scored twice.

    A judge of its own scores them again: the first one may keep what it said of an answer. An episode's outcome is a fact of
    the world that it was played in, and has no noise here.

    Raises:
        RecipeError, SetupError: as `Judge.start`.
    """
    stride = max(1, len(records) // ANSWERS)
    # what no answer is worth is said of a group, not of a sample; backwards, or processes that begin with equal chance
    # would score each answer with the same
    some = [r for r in records[::stride][:ANSWERS] if not r.turns and _is_scored(r.verdicts)][::-1]
    if not some:
        return None
    place = {row.id: i for i, row in enumerate(rows.rows)}
    prefix = {record.row: record.assistant_prefix for record in some}
    tasks = RowTasks(rows.rows, rows.golds, lambda row: prefix[row.id])
    again = Judge.of(recipe.model_copy(update={"environment": None}), base)
    try:
        again.start()
        second = again.judge([r.completion for r in some], [tasks[place[r.row]] for r in some])
    finally:
        again.close()
    outcome = RewardRule(recipe).outcome
    gaps = [
        outcome.pays(now.verdicts, now.reward) - outcome.pays(r.verdicts, r.reward)
        for r, now in zip(some, second, strict=True)
        if r.reward is not None and now.reward is not None and _is_scored(now.verdicts)
    ]
    if not gaps:
        return None
    return ScorerNoise(math.sqrt(math.fsum(gap * gap for gap in gaps) / (2 * len(gaps))), len(gaps))


def _is_scored(verdicts: Mapping[str, Verdict]) -> bool:
    return all(verdict.outcome in (Outcome.RIGHT, Outcome.WRONG) for verdict in verdicts.values())
