"""One step of preference learning: groups → pairs → TRL's trainer → what was measured.

How this works. `PairLearner.learn` makes pairs of the groups of a step (`prefer/pairs.py`), puts them in order, and hands them to one of
TRL's trainers (`prefer/trainers.py`) with the configuration that `trl_config` makes of the recipe. The trainer, its optimizer
and its reference last for one step; what it logged is renamed and averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainingArguments
from trl import DPOConfig, KTOConfig

from grpo_cli.errors import TrainingError
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.policy import Policy
from grpo_cli.preference.pairs import PairSummary, why_no_pairs
from grpo_cli.recipe.arithmetic import GPU_TOKENS_A_FORWARD
from grpo_cli.recipe.sections.recipe import Prefer, Recipe, Train
from grpo_cli.reward.group import Group
from grpo_cli.rollout.collect import step_seed
from grpo_cli.train.prefer.pairs import Example, LabelledExample, PairMethod, PairSet, in_order, keep_rows_apart
from grpo_cli.train.prefer.trainers import GuardedTrainer, LabelTrainer, PairTrainer, UpdateLog, data_set
from grpo_cli.train.trl_config import amp_fields, scheduler
from grpo_cli.train.updates import NonFinite

# From our recipe to the configurations of TRL's preference trainers.

BETA = {"simpo": 2.0}
"""Default `beta` of losses for which it is not 0.1. SimPO's weighs mean log-probs a token: with 0.1 it would learn very
little."""

GAMMA = 0.5
MOST = 1 << 24
"""A length limit that never truncates in ORPO and SimPO: answers that were too long were cut while sampling, and are in
no pair."""


@dataclass(frozen=True)
class Update:
    """Sizes of a step's learning: examples a forward pass, forward passes an update, updates."""

    micro: int
    accumulate: int
    count: int


def update_of(prefer: Prefer, examples: int, longest: int, device: torch.device) -> Update:
    """How `examples` are split into updates. A CPU computes an update in one pass; a GPU takes as many examples as fit
    a token budget.

    Args:
        prefer: its batch and micro-batch sizes are used.
        examples: pairs (KTO: answers) to learn from, epochs among them.
        longest: tokens of the longest prompt with its longer answer.
        device: where the model is.
    """
    # fewer examples than a batch form one batch, so that a step with few pairs learns too
    batch = min(prefer.batch, examples)
    most = batch if prefer.micro_batch is None else min(prefer.micro_batch, batch)
    if prefer.micro_batch is None and device.type == "cuda":
        most = max(1, GPU_TOKENS_A_FORWARD // (2 * max(longest, 1)))
    # KTO's KL term needs an answer to another prompt for each example
    least = 2 if prefer.loss == "kto" and batch > 1 else 1
    fits = [size for size in range(least, batch + 1) if batch % size == 0]
    micro = max((size for size in fits if size <= most), default=fits[0])
    return Update(micro, batch // micro, examples // batch)


def trl_config(
    prefer: Prefer,
    train: Train,
    folder: Path,
    update: Update,
    *,
    on_cpu: bool,
    autocast: torch.dtype | None,
    counts: tuple[int, int] = (1, 1),
) -> TrainingArguments:
    """TRL's configuration of one step; `counts` are its right and wrong answers, which KTO is balanced by."""
    # SimPO's beta weighs mean log-probs a token, so it needs a larger one
    fields: dict[str, Any] = {"beta": prefer.beta or BETA.get(prefer.loss, 0.1)}
    fields |= {
        "output_dir": str(folder),
        "per_device_train_batch_size": update.micro,
        "gradient_accumulation_steps": update.accumulate,
        "max_steps": update.count,
        "learning_rate": train.lr,
        "lr_scheduler_type": scheduler(train.schedule),
        "warmup_steps": train.lr_warmup_steps or 0,
        "max_grad_norm": train.max_grad_norm,
        "train_sampling_strategy": "sequential",  # the order is ours
        "logging_steps": 1,
        # transformers' filter would replace a NaN by a mean of earlier losses
        "logging_nan_inf_filter": False,
        # the trainer lasts for one step; checkpoints are the run's
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": on_cpu,
        **amp_fields(autocast),
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": train.seed,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": not on_cpu,
    }
    made: TrainingArguments
    if prefer.loss == "kto":
        right, wrong = kto_weights(*counts)
        fields |= {"desirable_weight": right, "undesirable_weight": wrong, "max_length": None}
        made = KTOConfig(**fields, precompute_ref_log_probs=True)
    elif prefer.loss in ("orpo", "simpo"):
        from trl.experimental.cpo import CPOConfig
        from trl.experimental.orpo import ORPOConfig

        fields["max_length"] = MOST
        if prefer.loss == "orpo":
            made = ORPOConfig(**fields)
        else:
            # CPO's own loss on the winners is off, as in SimPO's paper
            gamma = GAMMA if prefer.gamma is None else prefer.gamma
            made = CPOConfig(**fields, loss_type="simpo", cpo_alpha=0.0, simpo_gamma=gamma)
    else:
        # IRPO (arXiv 2404.19733) is DPO with a loss on the winners
        kinds = ["ipo" if prefer.loss == "ipo" else "sigmoid"]
        sft = (1.0 if prefer.loss == "irpo" else 0.0) if prefer.sft is None else prefer.sft
        fields |= {"loss_type": [*kinds, "sft"] if sft else kinds, "loss_weights": [1.0, sft] if sft else [1.0]}
        fields |= {"max_length": None, "router_aux_loss_coef": 0.0}
        made = DPOConfig(**fields, precompute_ref_log_probs=True)
    return made


def kto_weights(right: int, wrong: int) -> tuple[float, float]:
    """Weights of right and of wrong answers that bring right : wrong into [1, 4/3] (KTO, arXiv 2402.01306, eq. 8)."""
    # in KTO's terms n_D = right, n_U = wrong: lambda_D n_D / (lambda_U n_U) is to lie in [1, 4/3]
    ratio = right / wrong if wrong else 1.0
    if right and ratio < 1:
        # right answers weigh more until they count as much as wrong ones
        return wrong / right, 1.0
    if ratio > 4 / 3:
        # wrong ones weigh more until right : wrong is 4/3
        return 1.0, ratio * 3 / 4
    return 1.0, 1.0


RENAMED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "logps/chosen": "chosen/logps",
    "logps/rejected": "rejected/logps",
    "rewards/chosen": "chosen/reward",
    "rewards/rejected": "rejected/reward",
    "rewards/margins": "prefer/margin",
    "rewards/accuracies": "prefer/accuracy",
    "kl": "prefer/kl",
    "nll_loss": "prefer/nll",
    "entropy": "entropy",
}
"""TRL's metric names and ours in `metrics.jsonl`; other metrics are left out."""
LAST = ("loss", "chosen/logps", "rejected/logps", "prefer/margin", "prefer/accuracy")
"""Metrics of which the last update's value is logged too, in addition to the mean over the step."""


NO_PAIRS = "`grpo probe RECIPE` says what the model is right and wrong on; more rows, samples or tokens may help"


class PairLearner:
    """Learns from the pairs of a step, in place. Each step has its own optimizer, schedule and reference."""

    def __init__(self, recipe: Recipe, policy: Policy, folder: Path, guard: NonFinite) -> None:
        self.recipe, self.policy, self.folder, self.guard = recipe, policy, folder, guard
        self.method = PairMethod.of(recipe)

    def learn(self, at: int, groups: Sequence[Group], on_update: Callable[[int, int], None]) -> dict[str, float]:
        """Update the policy on the pairs of step `at` (from 0); returns metrics.

        A later step without pairs makes no update; it is logged with `updates` 0.

        Raises:
            TrainingError: no pair in the first step, or a loss that is not finite.
        """
        found = [self.method.pairs(group) for group in groups]
        return self.learn_from(at, PairSet.of_groups(groups, found), on_update)

    def learn_from(self, at: int, pairs: PairSet, on_update: Callable[[int, int], None]) -> dict[str, float]:
        """Update the policy on given pairs.

        Raises:
            TrainingError: as `learn`.
        """
        summary, examples = pairs.summary, self._examples(at, pairs)
        if not examples:
            if at == 0:
                raise TrainingError(why_no_pairs(summary), hint=NO_PAIRS)
            self.guard.note(f"step {at + 1}: {why_no_pairs(summary)}; nothing is learned")
            return {**summary_metrics(summary), "updates": 0}
        # seed dropout and TRL's other randomness, so that a resumed run repeats it
        torch.manual_seed(step_seed(self.recipe.train.seed, at + 1))
        recipe, policy, prefer, log = self.recipe, self.policy, self.recipe.prefer, UpdateLog(on_update)
        assert prefer is not None
        labels = [one.label for one in examples if isinstance(one, LabelledExample)]
        config = trl_config(
            prefer,
            recipe.train,
            self.folder,
            update_of(prefer, len(examples), max(one.width for one in examples), policy.device),
            on_cpu=policy.device.type == "cpu",
            autocast=policy.autocast,
            counts=(sum(labels), len(labels) - sum(labels)) if labels else (1, 1),
        )
        inner = causal_model(policy.model)
        own = inner.__dict__.get("forward")
        try:
            trainer = make_pair_trainer(prefer.loss, policy.model, config, examples, policy.tokenizer, log)
            trainer.guard, trainer.at = self.guard, at + 1
            trainer.train()
        finally:
            # remove the wrapper that TRL puts around the model's forward pass: otherwise every step would add one
            if own is None:
                inner.__dict__.pop("forward", None)
            else:
                inner.__dict__["forward"] = own
        # means over the updates; a value that is not finite was refused by the guard and is in no mean
        measured: dict[str, float] = {"updates": len(log.updates)}
        for theirs, ours in RENAMED.items():
            values = [u[theirs] for u in log.updates if theirs in u and math.isfinite(u[theirs])]
            if values:
                measured[ours] = math.fsum(values) / len(values)
                if ours in LAST:
                    measured[f"{ours}/last"] = values[-1]
        return {**summary_metrics(summary), **measured}

    def _examples(self, at: int, pairs: PairSet) -> list[Example]:
        prefer, seed = self.recipe.prefer, step_seed(self.recipe.train.seed, at + 1)
        assert prefer is not None
        if prefer.loss != "kto":
            return [*in_order(pairs.pairs, prefer.epochs, prefer.batch, seed)]
        if len({one.label for one in pairs.answers}) < 2:  # without both kinds of answers there is nothing to prefer
            return []
        ordered = in_order(pairs.answers, prefer.epochs, prefer.batch, seed)
        width = max(one.width for one in ordered)
        micro = update_of(prefer, len(ordered), width, self.policy.device).micro
        return [*keep_rows_apart(ordered, micro)]


def summary_metrics(summary: PairSummary) -> dict[str, float]:
    """Counts of pairs and of rows without one, and the length gap of a step."""
    found: dict[str, float] = {
        "prefer/pairs": summary.pairs,
        "prefer/rows": summary.rows_with_pairs,
        "prefer/answers/right": summary.right,
        "prefer/answers/wrong": summary.wrong,
    }
    if summary.length_gap is not None:
        found["prefer/length_gap"] = summary.length_gap.mean
    return found


def make_pair_trainer(
    loss: str,
    model: nn.Module,
    config: TrainingArguments,
    examples: Sequence[Example],
    tokenizer: PreTrainedTokenizerBase,
    log: UpdateLog,
) -> GuardedTrainer:
    """TRL's trainer for one step on these examples. The reference's log-probs, if needed, are computed here."""
    kind: type[GuardedTrainer] = LabelTrainer if loss == "kto" else PairTrainer
    if loss in ("orpo", "simpo"):
        from grpo_cli.train.prefer.free import KINDS  # TRL's experimental ones, imported where asked for

        kind = KINDS[loss]
    trainer = kind(
        model=model,
        args=config,
        train_dataset=data_set(examples, config.per_device_train_batch_size),
        processing_class=tokenizer,
        callbacks=[log],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
