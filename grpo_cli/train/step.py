"""THE LOOP TO READ: one step of GRPO, in the order in which it happens.

    rows    = choose(...)          which prompts
    groups  = collect(rows)        a group of samples for each, each with its verdicts and its reward
    (fill)                         the same again for groups without signal, where the recipe asks
    credit  = method.credit(...)   how much better each sample is than its own group
    learned = learn(...)           loss(advantages) → gradient → optimizer step
    record(...)                    ledger, statistics, files and display, which read the finished step and nothing else

The reward of a sample without a verdict is NaN: the sample is not in the baseline, gets advantage 0, and is counted.
`learn` may be any
update: thirty lines of torch (`examples/minimal_grpo.py`, which calls `grpo_step`), or TRL's. In `grpo train` TRL owns the
outer loop, so nothing calls `grpo_step` there: TRL's hooks call its halves and what stands between them, in this order.

    hook of `train/trainer.py`            calls                                      which is
    _generate_and_score_completions       train/loop.py:begin                        `collect_and_credit` below
    _generate                             train/trl_batch.py:generated               the samples, as TRL wants them
    _calculate_rewards                    torch.tensor                               the rewards, for TRL's log only
    _generate_and_score_completions       train/trl_batch.py:leave_out_cut           the loss mask, less cut answers
    _generate_and_score_completions       train/trl_batch.py:put_credit              the advantages, in the batch
    _prepare_inputs                       train/trainer.py:redistributed             micro-batches
    _compute_loss                         train/trainer.py:hooked_loss               the loss, around TRL's own
    _get_per_token_logps_and_entropies    train/log_probs.py:LogProbRequest          the policy's log-probs
    _get_grad_norm                        train/updates.py:gradient                  the guard of the optimizer step
    log                                   train/loop.py:close                        `close` below: the record
    _save_checkpoint                      resilience/checkpoint.py:saving            the checkpoint

Where to find it:

    which rows            curriculum/select.py:choose
    the samples           rollout/collect.py:sample
    the rewards           reward/pay.py:of, of the verdicts of reward/judge.py:judge
    the advantages        algorithm/advantage.py:group_advantages, called by algorithm/credit.py:credit, by train/credit.py:credit
    the loss mask         algorithm/loss.py:loss_mask, of the completion mask that `generated` and `leave_out_cut` make
    the loss              TRL's `_compute_loss`; what it lacks is added in train/trainer.py:hooked_loss
    the optimizer step    transformers' `Trainer._run_epoch`, right after its call of `_get_grad_norm`
    PPO's advantages      algorithm/gae.py:advantages, called by train/critic/learning.py:critic_credit
    the record            train/loop.py:_record
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from grpo_cli.algorithm.credit import Credit
from grpo_cli.curriculum.step_groups import Choose, CollectGroups, StepGroups, fill
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.train.credit import CreditMethod


@dataclass(frozen=True)
class StepBatch:
    """A step before the update. `groups` are trained on; `drawn` is all that was sampled for them, in that order.

    `filling` are the metrics of replacing groups without signal, `measured` those of monitors, by name.
    """

    step: int
    groups: Sequence[Group]
    drawn: Sequence[Group]
    credit: Credit
    filling: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Learned:
    """Metrics of the update of a batch: means over its optimizer steps."""

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
"""Records a step: the outcomes of its rows, statistics, files, display."""


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
        ServerLost: the engine is lost; nothing was learned, and only `choose` has advanced.
    """
    before = collect_and_credit(at, recipe, choose=choose, collect=collect, method=method)
    # in `grpo train` the next line is TRL's: padding, shuffling, micro-batches, loss, gradient, clipping, optimizer
    learned = learn(before)
    return close(before, learned, record=record)


def collect_and_credit(
    at: int, recipe: Recipe, *, choose: Choose, collect: CollectGroups, method: CreditMethod
) -> StepBatch:
    """The half before the update: P groups of G samples, and the credit of each sample."""
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
