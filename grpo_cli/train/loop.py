"""The state that a run keeps from step to step, and the two halves of a step.

How this works. `Loop.begin` chooses rows, samples and judges them, and gives credit (`step.py:collect_and_credit`); it returns a
`StepBatch`. TRL updates the policy. `Loop.close` records the step: the selection of rows gets the outcomes, the run's
folder gets samples and metrics, the display gets all of it. `RolloutParts` holds the parts of sampling and judging.

A step is counted when it is closed. Until then only the order of rows has changed. If the engine is lost this change is
undone, so that a checkpoint saved at that moment is one between two steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from grpo_cli.algorithm.credit import Credit
from grpo_cli.curriculum.ads import Ads, Clusters
from grpo_cli.curriculum.ledger import RowOutcome
from grpo_cli.curriculum.select import Selection
from grpo_cli.curriculum.step_groups import RowChoice
from grpo_cli.data.rows import Row
from grpo_cli.display.frame.sample import view_samples
from grpo_cli.display.protocol import Display
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.errors import TrainingError
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.recipe import AdsSpec, Recipe
from grpo_cli.resilience.checkpoint import TrainState
from grpo_cli.reward.errors import ERRORS_HINT, FailureLines
from grpo_cli.reward.group import Group
from grpo_cli.reward.group_judge import GroupJudge
from grpo_cli.reward.hints import Hints, hints_of
from grpo_cli.reward.judge import Judge, RowTasks, no_assistant_prefix
from grpo_cli.rollout.collect import Collect, Progress, sampling
from grpo_cli.rollout.engine import Engine
from grpo_cli.rollout.episodes.harness import episodes_of
from grpo_cli.rollout.mixing import mix_metrics
from grpo_cli.rollout.vllm.server import ServerLost
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.failures import Failures
from grpo_cli.statistics.step import drawn_stats, right_inconsistent, step_stats, timing_stats
from grpo_cli.train.clock import Clock, StepProgress, Utilisation
from grpo_cli.train.credit import CreditMethod, DistilMethod, Method
from grpo_cli.train.prefer.pairs import PairMethod
from grpo_cli.train.step import Learned, StepBatch, StepRecord, close, collect_and_credit

ENOUGH = 64
"""Smallest number of samples for which the share without a verdict may stop a run."""


@dataclass(frozen=True)
class StepAccount:
    """The records and metrics of a batch that do not depend on the update.

    Args:
        before: the batch.
        signals: of each group that was drawn, whether it has signal.
        records: one a sample that is trained on.
        batch: metrics of those samples.
        drawn: metrics of all samples that were drawn, including those that are not trained on.
    """

    before: StepBatch
    signals: list[bool]
    records: list[SampleRecord]
    batch: Mapping[str, Any]
    drawn: Mapping[str, Any]

    @classmethod
    def of(cls, before: StepBatch, recipe: Recipe, rows: Sequence[Row], method: CreditMethod) -> StepAccount:
        """Of a recipe's batch."""
        step, size = before.step + 1, recipe.sample.group
        A_PG, A_PGT = before.credit.A_PG.tolist(), before.credit.A_PGT
        finer = [None] * len(A_PG) if A_PGT is None else A_PGT.tolist()
        # records have a field for values, which is empty without a critic
        values: Sequence[Sequence[Sequence[float]] | None] = before.credit.values or [None] * len(A_PG)
        records = [
            record
            for number, (group, advantages, tokens, said) in enumerate(
                zip(before.groups, A_PG, finer, values, strict=True)
            )
            for record in group.records(step, number, rows[group.row], advantages, tokens, said)
        ]
        # groups that were drawn and dropped have no advantages; they count in the metrics of sampling
        every = [
            record
            for number, group in enumerate(before.drawn)
            for record in group.records(step, number, rows[group.row], [0.0] * len(group.rewards))
        ]
        signals = [method.has_signal(group) for group in before.drawn]
        # the mean of -log p over sampled tokens estimates the policy's entropy without bias where samples are the policy's own
        logps = [
            p
            for group in before.groups
            for completion in group.completions
            for c in completion.rows
            for p, own in zip(c.logps, c.mask, strict=True)
            if own
        ]
        drawn: dict[str, Any] = {
            # how certain the policy was; unknown if top-k or top-p truncate the distribution
            "entropy/sampled": None if sampling(recipe).truncates or not logps else -math.fsum(logps) / len(logps),
            "tokens/drawn": sum(group.tokens for group in before.drawn),
        }
        drawn |= drawn_stats(every, size, signals)
        batch = step_stats(records, size, [1, size], before.credit.signal_P.tolist())
        if recipe.sample.mixed:
            batch |= mix_metrics([c for group in before.groups for c in group.completions])
        consistency = [name for name, one in recipe.verify.items() if one.kind == "agrees"]
        if consistency:
            batch["consistency/right_inconsistent"] = right_inconsistent(records, consistency)
        return cls(before, signals, records, batch, drawn)


@dataclass(frozen=True)
class RolloutParts:
    """The parts that turn rows into judged groups: `engine` samples for `policy`, `judge` compares with `golds`.

    `golds` are the compiled golds of every verifier, one a row. `ranks` are the processes that share the work; None
    means this process alone.
    """

    recipe: Recipe
    rows: Sequence[Row]
    golds: Mapping[str, Sequence[Any]]
    judge: Judge
    engine: Engine
    policy: Policy
    ranks: Ranks | None = None


def judged_rollouts(parts: RolloutParts, progress: Progress) -> Collect[Group]:
    """The function that makes judged groups of rows, by a recipe.

    Raises:
        RecipeError: a shaping term with an option that it does not have.
    """
    recipe, judge, policy = parts.recipe, parts.judge, parts.policy
    episodes = episodes_of(
        recipe.environment, judge.worlds, parts.engine, policy, partial(progress.timed, "environment")
    )
    assistant_prefix = policy.assistant_prefix if episodes is None else no_assistant_prefix
    judges = GroupJudge(recipe, judge, RowTasks(parts.rows, parts.golds, assistant_prefix), policy.decode)
    return Collect(recipe, parts.rows, parts.engine, judges, policy.encode, progress, parts.ranks, episodes)


class Loop:
    """The state of a run between two steps; `steps_done` steps are closed."""

    def __init__(
        self,
        recipe: Recipe,
        rows: Sequence[Row],
        collect: Collect[Group],
        run: RunFolder,
        display: Display,
        clock: Clock,
        clusters: Clusters | None = None,
    ) -> None:
        self.recipe, self.rows, self.collect, self.run, self.display = recipe, rows, collect, run, display
        self.clock = clock
        train, ids, strategy = recipe.train, [row.id for row in rows], None
        if clusters is not None:
            spec = train.ads or AdsSpec()
            active = min(spec.active, len(clusters.members))
            # rounded up: a step may draw fewer rows than the windows hold, but never more
            width = math.ceil(recipe.sample.prompts / active)
            strategy = Ads(clusters, ids, active=active, width=width, reset=spec.reset)
        self.select = Selection(train.select, ids, train.seed, strategy)
        self.steps_done = self.samples_seen = self.errors_seen = 0
        self.recent_s: list[float] = []
        self.utilisation: Utilisation | None = None
        self._account: StepAccount | None = None
        self.lines = FailureLines()
        self.hints: Hints | None = None

    @classmethod
    def of(cls, parts: RolloutParts, run: RunFolder, display: Display, clusters: Clusters | None = None) -> Loop:
        """The loop over the rows of `parts`; `clusters` are the row clusters for `select: ads`.

        Raises:
            RecipeError: a shaping term with an option that it does not have.
        """
        clock = Clock()
        collect = judged_rollouts(parts, StepProgress(clock, display))
        loop = cls(parts.recipe, parts.rows, collect, run, display, clock, clusters)
        loop.utilisation, loop.lines = Utilisation.of(parts.policy), parts.judge.lines
        loop.hints = hints_of(parts.recipe, parts.rows, parts.judge)
        return loop

    @property
    def method(self) -> CreditMethod:
        """What the step under way learns from its samples."""
        return method_of(self.recipe, self.steps_done, self.hints)

    @property
    def ranks(self) -> Ranks:
        """The processes of the run."""
        return self.collect.ranks

    def begin(self) -> StepBatch:
        """The half before the update.

        Raises:
            TrainingError: no sample of the first step has a verdict, or too few samples of the run have one; the
            message names the most frequent failure.
            ServerLost: the engine is lost. The state that a checkpoint saves is as it was before the call.
        """
        # the only state that moves before the step is closed
        order = self.select.order_state()
        try:
            before = collect_and_credit(
                self.steps_done, self.recipe, choose=self.choose, collect=self.collect, method=self.method
            )
        except ServerLost:
            self.select.roll_back(order)
            raise
        found = Failures()
        for group in before.drawn:
            row = self.rows[group.row]
            for judgement in group.judgements:
                found.add(judgement.verdicts, row.place or row.id, row.fields)
        self.lines.see(found)
        # checked in the very first step: otherwise a broken verifier would waste many steps
        samples, errors = self._seen(before.drawn)
        allowed, text = self.recipe.stop.verifier_errors, ""
        if self.samples_seen == 0 and samples == errors and allowed < 1:
            text = f"none of the first {samples} samples got a verdict"
        elif samples >= ENOUGH and errors / samples > allowed:
            text = f"{errors / samples:.1%} of {samples} samples went without a verdict (limit {allowed:.0%})"
        if text:
            cause = f": {found.commonest[0]}" if found.failed else ""
            raise TrainingError(f"{text}{cause}", hint=ERRORS_HINT)
        self.display.phase("update")
        return before

    def choose(self, step: int, n: int, had: Collection[int]) -> RowChoice:
        """Rows for `n` groups, or twice as many if rows are screened."""
        screens = self.select.screens
        return RowChoice(self.select.choose(step, 2 * n if screens else n, had), n, screens)

    def close(self, before: StepBatch, learned: Learned) -> dict[str, Any]:
        """The half after the update; returns the metrics of the step."""
        metrics: dict[str, Any] = {}
        close(before, learned, record=lambda done: metrics.update(self._record(done)))
        return metrics

    def account(self, before: StepBatch) -> StepAccount:
        """The records and metrics of a batch, computed at the first call. The trainer calls early, while the device
        still computes."""
        if self._account is None or self._account.before is not before:
            self._account = StepAccount.of(before, self.recipe, self.rows, self.method)
        return self._account

    def follow(self, recipe: Recipe) -> None:
        """Continue with this recipe, in which a measured value was filled in after the loop was made."""
        self.recipe = recipe

    def row_ids(self, before: StepBatch, samples: Sequence[int]) -> list[str]:
        """The rows of samples of a step, counted in the order of its batch; each row once."""
        size = self.recipe.sample.group
        return sorted({self.rows[before.groups[sample // size].row].id for sample in samples})

    def state(self, skipped_steps: int) -> TrainState:
        """For a checkpoint."""
        return TrainState(
            self.ranks.world, self.steps_done, self.select.state(), self.samples_seen, skipped_steps, self.errors_seen
        )

    def load_state(self, state: TrainState) -> None:
        """Back from a checkpoint."""
        self.steps_done = state.generation
        self.select.load_state(dict(state.select))
        self.samples_seen, self.errors_seen = state.samples_seen, state.errors_seen

    def _record(self, done: StepRecord) -> dict[str, Any]:
        """Record the outcomes of the rows, write and show the step's records, and return its metrics."""
        before, account = done.before, self.account(done.before)
        self._account = None
        # `select: ads` uses the pull of each row; a row may be in the batch twice, but its pull counts once
        pulls = pulls_of(before.groups, before.credit, leaves_cut=self.recipe.train.mask_truncated)
        outcomes = [
            RowOutcome(g.row, g.right, g.judged, has_signal, pulls.pop(g.row, 0.0))
            for g, has_signal in zip(before.drawn, account.signals, strict=True)
        ]
        self.select.update(before.step, outcomes)
        self.steps_done = done.step
        self.samples_seen, self.errors_seen = self._seen(before.drawn)
        # later names win: a metric of the update replaces one of the batch with the same name
        metrics: dict[str, Any] = {"step": done.step, **account.batch}
        metrics |= {**done.learned.metrics, **self.select.metrics(), **before.filling, **before.measured}
        metrics |= before.credit.metrics
        if torch.cuda.is_available():  # peak memory and total memory of this process's GPU
            card = torch.cuda.get_device_properties(torch.cuda.current_device())
            metrics |= {
                "memory/peak_gib": torch.cuda.max_memory_allocated() / 2**30,
                "memory/total_gib": card.total_memory / 2**30,
            }
        metrics |= account.drawn
        # the clock restarts here: an evaluation or a checkpoint that follows counts as a pause of the next step
        phases, whole = self.clock.split()
        if self.utilisation is not None and phases["update"] > 0:
            # groups without signal need no FLOPs: computing their rows anyway does not count as utilisation
            trained = [g for g, has in zip(before.groups, before.credit.signal_P.tolist(), strict=True) if has]
            lengths = [
                (len(g.prompt_ids if c.branch is None else c.branch.prompt_ids), len(c.token_ids))
                for g in trained
                for completion in g.completions
                for c in completion.rows
            ]
            done_share = self.utilisation.share(lengths, self.recipe.train.inner_epochs, phases["update"])
            metrics["mfu"] = done_share / self.ranks.world  # every process has one GPU and an equal share of the rows
        metrics |= timing_stats(
            phases,
            metrics["tokens/drawn"],
            step_s=whole,
            recent_s=self.recent_s,
            steps_left=self.recipe.train.steps - done.step,
        )
        # the last twenty steps: enough for a steady estimate of the remaining time, few enough to follow growing
        # answers
        self.recent_s = [*self.recent_s[-19:], whole]
        # samples before metrics: a line of metrics means that the samples of its step are on disk
        self.run.write_samples(done.step, account.records)
        self.run.write_metrics(metrics)
        places = {self.rows[group.row].id: self.rows[group.row].place for group in before.groups}
        self.display.step(metrics, view_samples(account.records, places=places))
        return metrics

    def _seen(self, drawn: Sequence[Group]) -> tuple[int, int]:
        """Counts of the whole run including these samples: all samples, those without a reward, those whose environment
        raised."""
        samples = self.samples_seen + sum(len(group.rewards) for group in drawn)
        judged = [judgement for group in drawn for judgement in group.judgements]
        raised = [any(v.reason == "environment_raised" for v in judgement.verdicts.values()) for judgement in judged]
        lost = [judgement.reward is None for judgement in judged]
        return samples, self.errors_seen + sum(map(max, raised, lost))


def method_of(recipe: Recipe, step: int, hints: Hints | None = None) -> CreditMethod:
    """The method that gives credit to the samples of a step, counted from 0, by a recipe; `hints` are those of its teacher."""
    if recipe.train.method == "prefer":
        return PairMethod.of(recipe)
    own = Method.of(recipe, step)
    return own if hints is None else DistilMethod(own, hints)


def pulls_of(groups: Sequence[Group], credit: Credit, *, leaves_cut: bool) -> dict[int, float]:
    """The pull of each row of a step: the sum of |advantage| over the model's own tokens in all samples of the row.

    `leaves_cut`: truncated samples are left out of the loss, so their pull is 0.
    """
    tokens_PG = torch.tensor(
        [[0 if leaves_cut and c.finish == "length" else c.sampled_tokens for c in g.completions] for g in groups]
    )
    pulls = dict.fromkeys((group.row for group in groups), 0.0)
    for group, own in zip(groups, (credit.pulls(tokens_PG) * tokens_PG.ne(0)).tolist(), strict=True):
        pulls[group.row] += math.fsum(own)  # a row may stand in a batch twice
    return pulls
