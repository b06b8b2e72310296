"""THE LOOP TO READ: one step of GRPO, in the order in which it happens and is executed.

    rows    = choose(...)          which prompts
    groups  = collect(rows)        a group of samples for each, what a program says of each, and its reward
    (fill)                         the same again for groups without signal, where the recipe asks
    credit  = method.credit(...)   how much better each sample is than its own group
    learned = learn(...)           loss(advantages) → gradient → optimizer step
    record(...)                    ledger, statistics, files and display read what came of it and nothing else

A sample without a verdict travels as NaN: it leaves the baseline, gets advantage 0, and is counted. `learn` may be any
update: TRL's, to whose hooks `trainer.py` hands the two halves of this, or thirty lines of torch (`examples/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from grpo_cli.algorithm.credit import Credit
from grpo_cli.curriculum.resample import fill
from grpo_cli.curriculum.step_groups import Choose, CollectGroups, StepGroups
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.train.credit import CreditMethod


@dataclass(frozen=True)
class StepBatch:
    """A step before the update. `groups` are trained on; `drawn` is all that was sampled for them, in that order.

    `filling` says what it took to replace groups without signal, `measured` what monitors say of the batch.
    """

    step: int
    groups: Sequence[Group]
    drawn: Sequence[Group]
    credit: Credit
    filling: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Learned:
    """What the update of a batch measured, by metric name: means over its optimizer steps."""

    metrics: Mapping[str, float]


@dataclass(frozen=True)
class StepRecord:
    """A whole step."""

    before: StepBatch
    learned: Learned

    @property
    def step(self) -> int:
        """The number of the step, from 1."""
        return self.before.step + 1


Learn = Callable[[StepBatch], Learned]
Record = Callable[[StepRecord], object]
"""Takes note of a step: what its rows came to, statistics, files, display."""


def grpo_step(
    at: int,
    recipe: Recipe,
    *,
    choose: Choose,
    collect: CollectGroups,
    method: CreditMethod,
    learn: Learn,
    record: Record,
) -> StepRecord:
    """Step `at`, counted from 0.

    Raises:
        ServerLost: nothing was learned, and only `choose` has moved on.
    """
    before = collect_and_credit(at, recipe, choose=choose, collect=collect, method=method)
    # in `grpo train` the next line is TRL's: padding, shuffling, micro-batches, loss, gradient, clipping, optimizer
    learned = learn(before)
    return close(before, learned, record=record)


def collect_and_credit(
    at: int, recipe: Recipe, *, choose: Choose, collect: CollectGroups, method: CreditMethod
) -> StepBatch:
    """The half before the update: P groups of G samples, and what each sample is worth."""
    step_groups = StepGroups(at, recipe.sample.group, collect)

    def sample(n: int) -> list[Group]:
        rows = choose(at, n, step_groups.rows)
        return step_groups.collect(rows)

    groups, filling = sample(recipe.sample.prompts), dict[str, float]()
    if recipe.train.dead_groups == "resample":
        filled = fill(groups, sample, method.has_signal, recipe.train.resample_rounds)
        groups, filling = filled.groups, filled.metrics()
    return StepBatch(at, groups, step_groups.groups, method.credit(groups), filling)


def close(before: StepBatch, learned: Learned, *, record: Record) -> StepRecord:
    """The half after the update."""
    done = StepRecord(before, learned)
    record(done)
    return done
