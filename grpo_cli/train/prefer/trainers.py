"""TRL's preference trainers with our token ids, our reference and our guard; the losses are TRL's.

DPO (also IPO and IRPO) and KTO need the log-probs of a reference. They are computed once, before the first update, with
the weights that drew the samples, so no second model is needed. ORPO and SimPO have no reference; they are in
`free.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import DPOTrainer, KTOTrainer

from grpo_cli.train.prefer.pairs import Example, LabelledExample, PairExample
from grpo_cli.train.updates import NonFinite, Norm

Inputs = dict[str, Any]


class GuardedTrainer(Trainer):  # type: ignore[misc]
    """Stops on a loss that is not finite before it reaches the weights. `at` is the step of the run, for messages."""

    guard: NonFinite
    at: int

    def compute_loss(self, model: nn.Module, inputs: Inputs, *more: object, **named: object) -> torch.Tensor:
        """TRL's scalar loss, checked before the backward pass."""
        loss: torch.Tensor = super().compute_loss(model, inputs, *more, **named)
        self.guard.loss(loss.detach(), lambda: ["of this update"])
        return loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Norm = None) -> Norm:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        scaler = self.accelerator.scaler
        kept = self.guard.gradient(norm, self.at, model, scaler.get_scale() if scaler else 1.0)
        if kept is None and norm is not None:
            # a NaN would never leave TRL's running sum
            self._tr_loss = self._tr_loss.new_zeros(())  # type: ignore[has-type]
        return kept


Logs = Mapping[str, float]


class WithReference(GuardedTrainer):
    """The common part of DPO and KTO: rows are token ids, and the reference's log-probs are computed here."""

    columns: tuple[str, ...]

    def _prepare_dataset(self, dataset: Dataset, *_: object) -> Dataset:
        return dataset  # tokens already

    @torch.no_grad()
    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """The data set with log-probs of the current weights; TRL would use a cache file."""
        # without dropout: the reference is what drew the samples
        was_training = self.model.training
        self.model.eval()
        found: list[tuple[torch.Tensor, ...]] = []
        for start in range(0, len(dataset), batch_size):
            rows = dataset.select(range(start, min(start + batch_size, len(dataset)))).to_list()
            batch = self._prepare_inputs(self.data_collator(rows))
            found.append(tuple(part.float().cpu() for part in self.compute_ref_log_probs(self.model, batch)))
        self.model.train(was_training)
        if "ref" in getattr(self.model, "peft_config", {}):
            self.model.delete_adapter("ref")  # drop TRL's copy of the adapter
        # under these names TRL's collators find the log-probs, and TRL makes no reference model
        for column, parts in zip(self.columns, zip(*found, strict=True), strict=True):
            dataset = dataset.add_column(column, torch.cat(parts).tolist())
        return dataset


class PairTrainer(WithReference, DPOTrainer):  # type: ignore[misc]
    """DPO, IPO, and both with a loss on the winners."""

    columns = ("ref_chosen_logps", "ref_rejected_logps")


class LabelTrainer(WithReference, KTOTrainer):  # type: ignore[misc]
    """KTO."""

    columns = ("ref_logps", "ref_KL_logps")


class UpdateLog(TrainerCallback):  # type: ignore[misc]
    """Collects what TRL logs of each update, and calls `on_update` after it."""

    def __init__(self, on_update: Callable[[int, int], None]) -> None:
        self.updates: list[dict[str, float]] = []
        self.on_update = on_update

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Logs, **_: object
    ) -> None:
        """Record the log of an update; the closing summary is not one."""
        if "loss" in logs:
            self.updates.append({key: float(value) for key, value in logs.items()})
            self.on_update(len(self.updates), state.max_steps)


def data_set(examples: Sequence[Example], micro: int) -> Dataset:
    """The examples as TRL's collators take them, in their order; `micro` are those of one forward pass."""
    pairs = [one for one in examples if isinstance(one, PairExample)]
    if pairs:
        texts = {"prompt": "", "chosen": "", "rejected": ""}  # columns that the older trainers read
        return Dataset.from_list(
            [
                texts | {"prompt_ids": p.prompt_ids, "chosen_ids": p.chosen_ids, "rejected_ids": p.rejected_ids}
                for p in pairs
            ]
        )
    labelled = [one for one in examples if isinstance(one, LabelledExample)]
    rows = []
    for start in range(0, len(labelled), micro):
        window = labelled[start : start + micro]
        for place, one in enumerate(window):
            other = window[place - 1]  # TRL's rotation: each prompt with the previous answer, the first with the last
            rows.append(
                {
                    "prompt_ids": one.prompt_ids,
                    "completion_ids": one.completion_ids,
                    "KL_completion_ids": other.completion_ids,
                    "label": one.label,
                }
            )
    return Dataset.from_list(rows)
