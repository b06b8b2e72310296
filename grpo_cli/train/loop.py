"""What a run carries from step to step, and the two halves of a step on it.

How this works. `Loop.begin` chooses rows, samples and judges them, and gives credit (`step.py:collect_and_credit`); it returns a
`StepBatch`. TRL updates the policy. `Loop.close` records the step: outcomes to the selection of rows, samples and metrics to
the run's folder, all of it to the display. `RolloutParts` is what sampling and judging are made of.

A step is counted when it is closed. Until then only the order of rows has moved, which is taken back where the engine is
lost, so that a checkpoint taken there stands between two steps.
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
from grpo_cli.reward.judge import Judge, RowTasks, no_assistant_prefix
from grpo_cli.rollout.collect import Collect, Progress, sampling
from grpo_cli.rollout.engine import Engine
from grpo_cli.rollout.episodes.play import Episodes
from grpo_cli.rollout.vllm.server import ServerLost
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.failures import Failures
from grpo_cli.statistics.step import drawn_stats, step_stats, timing_stats
from grpo_cli.train.clock import Clock, StepProgress, Utilisation
from grpo_cli.train.credit import CreditMethod, Method
from grpo_cli.train.prefer.pairs import PairMethod
from grpo_cli.train.step import Learned, StepBatch, StepRecord, close, collect_and_credit

ENOUGH = 64
"""Samples from which the share without a verdict may stop a run."""


@dataclass(frozen=True)
class StepAccount:
    """The records and metrics of a batch that do not depend on the update.

    Args:
        before: the batch.
        signals: of each group that was drawn, whether it has signal.
        records: one a sample that is trained on.
        batch: metrics of those samples.
        drawn: metrics of all samples that were drawn, those among them that are not trained on.
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
        # without a critic there are no values; a record has a place for them either way
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
            for c in group.completions
            for p, own in zip(c.logps, c.mask, strict=True)
            if own
        ]
        drawn: dict[str, Any] = {
            # how sure the policy was, unless truncation hides it
            "entropy/sampled": None if sampling(recipe).truncates or not logps else -math.fsum(logps) / len(logps),
            "tokens/drawn": sum(group.tokens for group in before.drawn),
        }
        drawn |= drawn_stats(every, size, signals)
        batch = step_stats(records, size, [1, size], before.credit.signal_P.tolist())
        return cls(before, signals, records, batch, drawn)


@dataclass(frozen=True)
class RolloutParts:
    """What turns rows into judged groups, as a recipe asks: `engine` samples for `policy`, `judge` compares with `golds`.

    `golds` are the compiled answers of every verifier, one a row; `ranks` the processes that share the work, None: this one.
    """

    recipe: Recipe
    rows: Sequence[Row]
    golds: Mapping[str, Sequence[Any]]
    judge: Judge
    engine: Engine
    policy: Policy
    ranks: Ranks | None = None


def judged_rollouts(parts: RolloutParts, progress: Progress) -> Collect[Group]:
    """Rows to judged groups, as a recipe asks.

    Raises:
        RecipeError: a shaping term with an option that it does not have.
    """
    recipe, judge, policy = parts.recipe, parts.judge, parts.policy
    episodes = Episodes.where_asked(
        recipe.environment, judge.worlds, parts.engine, policy, partial(progress.timed, "environment")
    )
    assistant_prefix = policy.assistant_prefix if episodes is None else no_assistant_prefix
    judges = GroupJudge(recipe, judge, RowTasks(parts.rows, parts.golds, assistant_prefix), policy.decode)
    return Collect(recipe, parts.rows, parts.engine, judges, policy.encode, progress, parts.ranks, episodes)


class Loop:
    """A run between its steps; `steps_done` of them are closed."""

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
        self.clock, self.method = clock, method_of(recipe)
        train, ids, strategy = recipe.train, [row.id for row in rows], None
        if clusters is not None:
            spec = train.ads or AdsSpec()
            active = min(spec.active, len(clusters.members))
            # rounded up: a step may draw less than a window, never more than all of them
            width = math.ceil(recipe.sample.prompts / active)
            strategy = Ads(clusters, ids, active=active, width=width, reset=spec.reset)
        self.select = Selection(train.select, ids, train.seed, strategy)
        self.steps_done = self.samples_seen = self.errors_seen = 0
        self.recent_s: list[float] = []
        self.utilisation: Utilisation | None = None
        self._account: StepAccount | None = None
        self.lines = FailureLines()

    @classmethod
    def of(cls, parts: RolloutParts, run: RunFolder, display: Display, clusters: Clusters | None = None) -> Loop:
        """The loop over the rows of `parts`; `clusters` of them where `select: ads` asks for some.

        Raises:
            RecipeError: a shaping term with an option that it does not have.
        """
        clock = Clock()
        collect = judged_rollouts(parts, StepProgress(clock, display))
        loop = cls(parts.recipe, parts.rows, collect, run, display, clock, clusters)
        loop.utilisation, loop.lines = Utilisation.of(parts.policy), parts.judge.lines
        return loop

    @property
    def ranks(self) -> Ranks:
        """The processes of the run."""
        return self.collect.ranks

    def begin(self) -> StepBatch:
        """The half before the update.

        Raises:
            TrainingError: none of the first step's samples has a verdict, or too few of all; with the commonest failure.
            ServerLost: everything a checkpoint keeps of this object is as it was before the call.
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
        # in the first step at once: a broken verifier would otherwise burn the whole of it again and again
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
        """Rows for `n` groups, twice as many where they are screened."""
        screens = self.select.screens
        return RowChoice(self.select.choose(step, 2 * n if screens else n, had), n, screens)

    def close(self, before: StepBatch, learned: Learned) -> dict[str, Any]:
        """The half after the update; returns the metrics of the step."""
        metrics: dict[str, Any] = {}
        close(before, learned, record=lambda done: metrics.update(self._record(done)))
        return metrics

    def account(self, before: StepBatch) -> StepAccount:
        """The records and metrics of a batch; made once, by the first caller: the trainer calls while the device computes."""
        if self._account is None or self._account.before is not before:
            self._account = StepAccount.of(before, self.recipe, self.rows, self.method)
        return self._account

    def follow(self, recipe: Recipe) -> None:
        """Learn by this recipe, of which something was measured since the loop was made."""
        self.recipe, self.method = recipe, method_of(recipe)

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
        """Note what the rows came to, write the step's records, show them, and return its metrics."""
        before, account = done.before, self.account(done.before)
        self._account = None
        # `select: ads` follows how hard rows pull; a row may stand in the batch twice, so its pull is given out once
        pulls = pulls_of(before.groups, before.credit, leaves_cut=self.recipe.train.mask_truncated)
        outcomes = [
            RowOutcome(g.row, g.right, g.judged, has_signal, pulls.pop(g.row, 0.0))
            for g, has_signal in zip(before.drawn, account.signals, strict=True)
        ]
        self.select.update(before.step, outcomes)
        self.steps_done = done.step
        self.samples_seen, self.errors_seen = self._seen(before.drawn)
        # later names win: what the update measured stands above what the batch shows of the same name
        metrics: dict[str, Any] = {"step": done.step, **account.batch}
        metrics |= {**done.learned.metrics, **self.select.metrics(), **before.filling, **before.measured}
        metrics |= before.credit.metrics
        if torch.cuda.is_available():  # peak and whole memory of this process's card
            card = torch.cuda.get_device_properties(torch.cuda.current_device())
            metrics |= {
                "memory/peak_gib": torch.cuda.max_memory_allocated() / 2**30,
                "memory/total_gib": card.total_memory / 2**30,
            }
        metrics |= account.drawn
        # the clock starts anew here: what follows, an evaluation or a checkpoint, is a pause of the next step
        phases, whole = self.clock.split()
        if self.utilisation is not None and phases["update"] > 0:
            # a group without signal needs no arithmetic: where its rows are computed all the same, that is no use of the card
            trained = [g for g, has in zip(before.groups, before.credit.signal_P.tolist(), strict=True) if has]
            lengths = [(len(g.prompt_ids), len(c.token_ids)) for g in trained for c in g.completions]
            done_share = self.utilisation.share(lengths, self.recipe.train.inner_epochs, phases["update"])
            metrics["mfu"] = done_share / self.ranks.world  # every process has a card and an equal part of the rows
        metrics |= timing_stats(
            phases,
            metrics["tokens/drawn"],
            step_s=whole,
            recent_s=self.recent_s,
            steps_left=self.recipe.train.steps - done.step,
        )
        # twenty steps: enough for a steady estimate of the time left, few enough to follow growing answers
        self.recent_s = [*self.recent_s[-19:], whole]
        # samples before metrics: a line of metrics means that the samples of its step are on disk
        self.run.write_samples(done.step, account.records)
        self.run.write_metrics(metrics)
        places = {self.rows[group.row].id: self.rows[group.row].place for group in before.groups}
        self.display.step(metrics, view_samples(account.records, places=places))
        return metrics

    def _seen(self, drawn: Sequence[Group]) -> tuple[int, int]:
        """Samples of the whole run, and those without a reward or in a world that raised, with these among them."""
        samples = self.samples_seen + sum(len(group.rewards) for group in drawn)
        judged = [judgement for group in drawn for judgement in group.judgements]
        raised = [any(v.reason == "environment_raised" for v in judgement.verdicts.values()) for judgement in judged]
        lost = [judgement.reward is None for judgement in judged]
        return samples, self.errors_seen + sum(map(max, raised, lost))


def method_of(recipe: Recipe) -> CreditMethod:
    """What a recipe's steps learn from their samples."""
    return PairMethod.of(recipe) if recipe.train.method == "prefer" else Method.of(recipe)


def pulls_of(groups: Sequence[Group], credit: Credit, *, leaves_cut: bool) -> dict[int, float]:
    """How hard each row of a step pulls: the sum of |advantage| over the model's own tokens of all its samples, by row.

    `leaves_cut`: a cut sample is left out of the loss, so that it pulls nothing.
    """
    tokens_PG = torch.tensor(
        [[0 if leaves_cut and c.finish == "length" else c.sampled_tokens for c in g.completions] for g in groups]
    )
    pulls = dict.fromkeys((group.row for group in groups), 0.0)
    for group, own in zip(groups, (credit.pulls(tokens_PG) * tokens_PG.ne(0)).tolist(), strict=True):
        pulls[group.row] += math.fsum(own)  # a row may stand in a batch twice
    return pulls
