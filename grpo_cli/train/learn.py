"""The update, as far as it is not TRL's: what is put around its loss of a micro-batch, and what the updates measured.

A batch is used up in several micro-batches and optimizer steps, each of which TRL calls apart; `UpdateMetrics` is where what they
measured meets. B rows of a micro-batch, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from statistics import fmean
from typing import Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from trl import GRPOConfig

from grpo_cli.algorithm.loss import (
    PER_ROW,
    MicroBatchLogProbs,
    Objective,
    aggregate,
    drop_dead_rows,
    kl_per_token,
    token_kl,
    trim,
)
from grpo_cli.recipe.whole_batch import whole_only
from grpo_cli.train.log_probs import Batch, LogProbSource, RecordedLogProbs
from grpo_cli.train.packed.source import PackedSource
from grpo_cli.train.step import Learned

MEASURED = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "entropy": "entropy",
    "kl": "kl",
    "clip_ratio/region_mean": "clip/total",
    "clip_ratio/low_mean": "clip/low",
    "clip_ratio/high_mean": "clip/high",
    "cispo_clip_ratio": "clip/total",
}
"""TRL's names of what the optimizer step measured -> ours."""


class UpdateMetrics:
    """What the updates of a batch measure. `by_row`: the loss has one ratio a row, whose clipping is a mean over rows."""

    def __init__(self, by_row: bool = False) -> None:
        self.by_row = by_row
        self._sizes: list[Tensor] = []
        self._updates: list[dict[str, float]] = []

    def micro_batch(self, size_3: Tensor) -> None:
        """(3,) tokens in the loss of a micro-batch, rows, and rows with such a token, of all ranks."""
        self._sizes.append(size_3)

    def update(self, logs: Mapping[str, float], metrics: dict[str, list[float]]) -> None:
        """An optimizer step is done. `logs` are transformers' words on it, `metrics` TRL's, emptied here, a list each."""
        tokens, rows, counted = torch.stack(self._sizes).T.tolist()
        self._sizes.clear()
        means = {
            key: _mean(values, rows, counted)  # TRL's is over rows, of which some are masked
            if self.by_row and "clip_ratio" in key
            else _mean(values, tokens, tokens)
            for key, values in metrics.items()
        }
        metrics.clear()
        measured = dict(logs) | {key: value for key, value in means.items() if value is not None}
        self._updates.append({ours: measured[name] for name, ours in MEASURED.items() if name in measured})

    def take(self, **more: float) -> Learned:
        """Means over the updates since the last call, with `more` beside them."""
        # a union: what is measured once a batch stands in the first update only
        keys = dict.fromkeys(key for update in self._updates for key in update)
        found = {key: fmean(u[key] for u in self._updates if key in u) for key in keys}
        self._updates.clear()
        return Learned(found | more)


class LossSeam(Protocol):
    """What the loss needs of the trainer; the names without a comment are TRL's."""

    accelerator: Accelerator
    args: GRPOConfig
    beta: float
    entropy_coef: float
    _entropy_bonus_enabled: bool
    current_gradient_accumulation_steps: int
    max_completion_length: int
    _metrics: dict[str, dict[str, list[float]]]

    objective: Objective  # ours, as all that follows
    updates: UpdateMetrics
    source: LogProbSource
    packed: PackedSource | None

    def reading(self, source: LogProbSource) -> AbstractContextManager[None]: ...


def hooked_loss(
    trainer: LossSeam,
    compute: Callable[[nn.Module, Batch], Tensor],
    model: nn.Module,
    inputs: Batch,
    largest: Callable[[int], int],
) -> Tensor:
    """The recipe's loss of one micro-batch: a scalar with its graph.

    Args:
        trainer: the seam.
        compute: TRL's own `_compute_loss`.
        model: what TRL hands to it.
        inputs: the micro-batch.
        largest: the largest of a number over all ranks.
    """
    objective = trainer.objective
    prepare = partial(prepared, objective, inputs, largest)
    source: LogProbSource
    if trainer.packed is not None:
        (rows, share), source = trainer.packed.ahead(prepare)
    else:
        (rows, share), source = prepare(), trainer.source
    scored = MicroBatchLogProbs(objective, rows)
    if trainer._entropy_bonus_enabled and not whole_only(trainer.args.__dict__):
        trainer.entropy_coef = trainer.args.entropy_coef * _share_of_tokens(trainer, scored)
    recorded = RecordedLogProbs(source, scored, trainer.accelerator, trainer.updates.micro_batch)
    trainer.beta = objective.trl_beta
    try:
        with trainer.reading(recorded):
            loss = compute(model, scored.inputs) * share
    finally:
        trainer.beta = 0.0
    if objective.imitates:
        assert scored.logps_BT is not None
        loss = loss + objective.imitates * _averaged(
            trainer, scored, -scored.logps_BT * scored.inputs["imitation"]
        )
    if not objective.own_beta:
        return loss
    assert scored.logps_BT is not None
    ref_BT, mask_BT = scored.inputs["ref_per_token_logps"], scored.mask_BT
    term_BT = kl_per_token(scored.logps_BT, ref_BT, objective.estimator)
    kl = token_kl(scored.logps_BT.detach(), ref_BT, mask_BT, trainer.accelerator)
    trainer._metrics["train"]["kl"].append(kl)
    return loss + objective.own_beta * _averaged(trainer, scored, term_BT)


def _averaged(trainer: LossSeam, scored: MicroBatchLogProbs, term_BT: Tensor) -> Tensor:
    """A term of each token, averaged as the policy's."""
    return aggregate(
        term_BT,
        scored.mask_BT,
        scored.objective.loss,
        items=scored.inputs["num_items_in_batch"] / trainer.accelerator.num_processes,
        accumulate=trainer.current_gradient_accumulation_steps,
        generation=trainer.args.steps_per_generation,
        max_tokens=trainer.max_completion_length,
    )


def prepared(objective: Objective, inputs: Batch, largest: Callable[[int], int]) -> tuple[Batch, float]:
    """The rows of a micro-batch that go into its loss, without columns of padding, and what the loss is multiplied by."""
    share = 1.0
    if objective.drop_dead:
        inputs, share = drop_dead_rows(inputs, objective.loss, largest)
    if objective.loss in PER_ROW:
        # a mean over the rows that pruning left, of which each micro-batch has about as many
        share /= objective.kept
    return trim(inputs), share


def _share_of_tokens(trainer: LossSeam, scored: MicroBatchLogProbs) -> float:
    """What makes TRL's mean over a micro-batch's tokens, added up over micro-batches and averaged over ranks, a mean over
    all tokens of the optimizer step."""
    items = float(scored.inputs["num_items_in_batch"]) / int(trainer.accelerator.num_processes)
    tokens, parts = int(scored.mask_BT.sum()), int(trainer.args.steps_per_generation)
    return tokens * parts / max(items, 1.0)


def _mean(values: list[float], sizes: list[int], counted: list[int]) -> float | None:
    """The mean over all of what has a mean over the `sizes` of each micro-batch, of which `counted` count.

    Micro-batches differ in size, most where they go by length. None where nothing counted: an update of cut answers alone
    has no entropy, and one of 0 would pull down the mean over updates.
    """
    if len(values) != len(sizes):  # measured once a batch
        sizes = counted = [1] * len(values)
    known = [(v, n, c) for v, n, c in zip(values, sizes, counted, strict=True) if not math.isnan(v)]
    whole = sum(c for _, _, c in known)
    return sum(value * n for value, n, _ in known) / whole if whole else None
