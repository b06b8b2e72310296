"""The result of a probe, from its samples alone: pass rates, outcomes, predicted dead groups, examples.

Every share is a mean over prompts of the mean over a prompt's samples, with an interval clustered by prompt; pass@1 and
the forecast leave samples without a primary verdict out; the shares of outcomes are its own, but for `error`: samples on which
some verifier failed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grpo_cli.data.rows import Split
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.recipe.sections.rewards import kind_class
from grpo_cli.reward.judge import Judge, RowTasks
from grpo_cli.reward.pay import RewardRule
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.dead_groups import GROUPS, DeadGroupForecast, forecast, group_that_pays
from grpo_cli.statistics.estimate import Interval, clustered, pass_at_k_interval
from grpo_cli.statistics.failures import Failures
from grpo_cli.statistics.step import GroupCounts, likeness, mean, percentile, would_have_signal
from grpo_verifiers.verdict import Outcome, Verdict

EXAMPLES = 2
"""Number of samples kept of each kind of failure."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: `judged` samples have a verdict, `right` of them are right."""

    row: str
    samples: int
    judged: int
    right: int

    def as_json(self) -> dict[str, Any]:
        """The object in `--json`."""
        rate = self.right / self.judged if self.judged else None
        return {"row": self.row, "judged": self.judged, "right": self.right, "pass": rate}


@dataclass(frozen=True)
class Probe:
    """One probe; `group` is the recipe's group size, `max_tokens` its limit."""

    prompts: tuple[Prompt, ...]
    samples: int
    group: int
    max_tokens: int
    pass_1: Interval
    pass_k: Interval | None
    outcomes: dict[str, Interval]
    failures: Failures
    reasons: dict[str, int]
    truncated: Interval
    right_when_cut: float | None
    mean_tokens: float | None
    p95_tokens: float | None
    right_p95_tokens: float | None
    equal_rewards: float | None
    distinct: float | None
    """Different texts among the samples of a prompt, mean."""
    one_text: float | None
    """Share of the prompts whose samples are one text, and not right."""
    forecasts: tuple[DeadGroupForecast, ...]
    pays: DeadGroupForecast | None
    examples: dict[str, tuple[SampleRecord, ...]]
    noise: ScorerNoise | None = None
    unlearnable: tuple[str, str] | None = None
    """What cannot be learned from groups that are all wrong, with a remedy."""

    @property
    def at_group(self) -> DeadGroupForecast | None:
        """The forecast at the recipe's group size."""
        return next((f for f in self.forecasts if f.group == self.group), None)

    def histogram(self) -> dict[int, int]:
        """How many prompts had k right samples, for every k."""
        counts = Counter(p.right for p in self.prompts if p.judged)
        return {k: counts[k] for k in range(self.samples + 1)}

    def as_json(self) -> dict[str, Any]:
        """The object in `--json`, examples as sample lines; `noise` where it was measured."""
        measured = {"noise": self.noise.as_json() | {"floor": self.noise.floor(self.group)}} if self.noise else {}
        return measured | {
            "prompts": [p.as_json() for p in self.prompts],
            "n": len(self.prompts),
            "samples": self.samples,
            "pass@1": self.pass_1.as_json(),
            f"pass@{self.samples}": self.pass_k.as_json() if self.pass_k else None,
            "outcomes": {name: share.as_json() for name, share in self.outcomes.items()},
            **self.failures.as_json(),
            "reasons": self.reasons,
            "truncated": self.truncated.as_json(),
            "right_when_truncated": self.right_when_cut,
            "length": {
                "mean": self.mean_tokens,
                "p95": self.p95_tokens,
                "right_p95": self.right_p95_tokens,
                "max_tokens": self.max_tokens,
            },
            "equal_rewards": self.equal_rewards,
            "distinct": self.distinct,
            "one_text": self.one_text,
            "group": self.group,
            "forecast": [f.as_json() for f in self.forecasts],
            "group_that_pays": self.pays.group if self.pays else None,
            "examples": {kind: [r.as_json() for r in found] for kind, found in self.examples.items()},
        }


def summarise(
    records: Sequence[SampleRecord],
    *,
    samples: int,
    group: int,
    max_tokens: int,
    seed: int = 0,
    signals: Sequence[bool] | None = None,
    noise: ScorerNoise | None = None,
    unlearnable: tuple[str, str] | None = None,
) -> Probe:
    """What the records show; they come in groups of `samples` per prompt.

    `signals` are of each group whether training would learn from it; without it the rewards in the records do. `noise` is the
    scorer's, `unlearnable` as in `Probe`.
    """
    groups = [list(records[i : i + samples]) for i in range(0, len(records), samples)]
    counted = [(members[0].row, GroupCounts.of(record.outcome for record in members)) for members in groups]
    prompts = tuple(Prompt(row, n.size, n.judged, n.right) for row, n in counted)
    counts = [(p.judged, p.right) for p in prompts]
    if signals is None:
        signals = [would_have_signal([r.reward for r in g if r.reward is not None]) for g in groups]
    judged = [[float(r.is_right) for r in members if r.is_judged] for members in groups]
    forecasts = forecast(counts, sorted({*GROUPS, group}), seed)
    cut = [r for r in records if r.truncated and r.is_judged]
    distinct, one_text = likeness(groups)
    reasons = Counter(v.reason for r in records if not r.is_right for v in r.verdicts.values() if v.reason)
    return Probe(
        prompts=prompts,
        samples=samples,
        group=group,
        max_tokens=max_tokens,
        pass_1=clustered(judged),
        pass_k=pass_at_k_interval(counts, samples) if any(n >= samples for n, _ in counts) else None,
        outcomes={kind: _share(groups, partial(_is_of, kind)) for kind in Outcome},
        failures=Failures.of(records),
        reasons=dict(reasons.most_common()),
        truncated=_share(groups, lambda r: r.truncated),
        right_when_cut=mean([float(r.is_right) for r in cut]),
        mean_tokens=mean([r.tokens for r in records]),
        p95_tokens=percentile([r.tokens for r in records], 0.95),
        right_p95_tokens=percentile([r.tokens for r in records if r.is_right], 0.95),
        equal_rewards=mean([float(not has_signal) for has_signal in signals]),
        distinct=distinct,
        one_text=one_text,
        forecasts=tuple(forecasts),
        pays=group_that_pays(forecasts),
        examples=examples(records),
        noise=noise,
        unlearnable=unlearnable,
    )


def examples(records: Sequence[SampleRecord], most: int = EXAMPLES) -> dict[str, tuple[SampleRecord, ...]]:
    """A few samples of every outcome but right, and of what was cut off, each from another prompt where there are some."""
    kinds = {kind.value: [r for r in records if _kind(r) is kind] for kind in Outcome if kind is not Outcome.RIGHT}
    kinds["truncated"] = [r for r in records if r.truncated]
    out: dict[str, tuple[SampleRecord, ...]] = {}
    for kind, matching in kinds.items():
        shown = [id(r) for chosen in out.values() for r in chosen]
        found = [r for r in matching if id(r) not in shown]
        by_row: dict[str, SampleRecord] = {}
        for record in found:
            by_row.setdefault(record.row, record)
        first = list(by_row.values())
        rest = [r for r in found if all(r is not kept for kept in first)]
        if found:
            out[kind] = tuple([*first, *rest][:most])
    return out


def _is_of(kind: Outcome, record: SampleRecord) -> bool:
    return record.is_failed if kind is Outcome.ERROR else _kind(record) == kind


def _share(groups: Sequence[Sequence[SampleRecord]], holds: Callable[[SampleRecord], bool]) -> Interval:
    return clustered([[float(holds(record)) for record in members] for members in groups])


def _kind(record: SampleRecord) -> Outcome:
    """A sample without any verdict counts as an error."""
    return record.outcome or Outcome.ERROR


# The noise of a scorer: the same answers scored twice, and the floor below which a spread of a group is its noise.

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
    """Whether what is paid for an answer may be another sum the second time: a floor is set by that, or a judge model decides."""
    asked = (kind_class(one.kind).is_noisy for one in recipe.verify.values() if one.weight)
    return recipe.train.std_floor == "noise" or any(asked)


def scored_twice(recipe: Recipe, base: Path | None, rows: Split, records: Sequence[SampleRecord]) -> ScorerNoise | None:
    """The noise of what the outcome pays, over at most 64 of these judged answers; None where none was scored twice.

    A judge of its own scores them again: the first one may keep its verdict on an answer. An episode's outcome is a fact of
    the world that it was played in, and has no noise here.

    Raises:
        RecipeError, SetupError: as `Judge.start`.
    """
    stride = max(1, len(records) // ANSWERS)
    # what no answer is worth is decided for a group, not for a sample; backwards, or processes that begin with equal chance
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
