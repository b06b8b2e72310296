"""What transformers' trainer does otherwise where ranks hold shards: loading, saving, and switching the engine on. And the
rate of a run that goes on longer than its checkpoint knows.

The weights of a checkpoint are a plain Hugging Face folder, the optimizer state stays sharded, in the same folder. With FSDP2 they
are the float32 ones that are trained, and torch.distributed.checkpoint reads the state back on any number of ranks.
With ZeRO they are in the precision it computes in; DeepSpeed keeps those it trains with its state, and reads them back
on as many ranks as wrote them.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.distributed.tensor import DTensor
from transformers.trainer import SCHEDULER_NAME
from trl import GRPOTrainer

from grpo_cli.distributed.sharding import bytes_of_rank, open_path
from grpo_cli.errors import DataError

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.distributed.replica import Replica
    from grpo_cli.recipe.sections.course import Strategy


class SavedWithModel(Protocol):
    """What learns in addition to the model, and is saved and loaded with it."""

    def save(self, checkpoint: Path) -> None: ...
    def load(self, checkpoint: Path) -> None: ...


class ShardedTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer under a `launch.strategy`; with `ddp` every method is TRL's own."""

    also_saved: SavedWithModel | None = None

    def __init__(self, strategy: Strategy, replica: Replica | None, **more: object) -> None:
        self.strategy, self.replica = strategy, replica
        self._rank_memory: dict[str, float] = {}
        super().__init__(**more)

    def create_accelerator_and_postprocess(self) -> None:
        open_path(self.strategy)
        super().create_accelerator_and_postprocess()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """The weights of a plain folder, into a model that is not sharded yet; afterwards they are there already."""
        if self.also_saved is not None:
            self.also_saved.load(Path(resume_from_checkpoint))
        if self.is_sharded:
            return
        was, self.is_fsdp_enabled = self.is_fsdp_enabled, False  # type: ignore[has-type]
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        finally:
            self.is_fsdp_enabled = was
        if self.replica:
            # a count that no run has: the next reader copies the weights that were loaded
            self.replica.updates = -1

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        try:
            super()._load_optimizer_and_scheduler(checkpoint)
        except pickle.UnpicklingError as err:  # read as numbers only: anything else could run code
            raise DataError(
                "the state of the optimizer holds more than numbers, so it is not read",
                place=str(checkpoint),
                hint="begin a run of its own from the weights: `model.path` may name this folder",
            ) from err
        if checkpoint is not None:
            set_rate(self.lr_scheduler, self.optimizer, self.args.learning_rate)

    def sync_weights(self) -> None:
        """Bring the copy that generates up to the weights of now; nothing to do where the engine reads them in place."""
        if self.replica is not None:
            self.replica.follow(self.model, self.state.global_step)

    @property
    def whole(self) -> nn.Module:
        """The model that scores outside the loss: the policy itself, or its replica."""
        model: nn.Module = self.replica.model if self.replica else self.model
        return model

    @property
    def is_sharded(self) -> bool:
        """Whether the ranks have split the model among them yet."""
        return any(isinstance(p, DTensor) for p in self.model.parameters())

    def rank_memory(self) -> dict[str, float]:
        """What one of several processes holds (rank 0's share), measured after the first update."""
        # which makes the optimizer's state; a batch without signal is none (DeepSpeed steps on it all the same)
        updated = self.strategy.startswith("zero") or self.optimizer.state
        if not self._rank_memory and updated and self.accelerator.num_processes > 1:
            self._rank_memory = {"memory/held_mib": bytes_of_rank(self.model, self.optimizer) / 2**20}
        return self._rank_memory

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """A plain Hugging Face folder, or an adapter's, written by rank 0."""
        if self.strategy != "fsdp2":
            super().save_model(output_dir, _internal_call)
            return
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(
            full_state_dict=True,
            cpu_offload=True,
            broadcast_from_rank0=False,
            ignore_frozen_params=hasattr(self.model, "peft_config"),
        )
        self._save(output_dir, state_dict=get_model_state_dict(self.model, options=options))

    def _save(self, output_dir: str | None = None, state_dict: Mapping[str, object] | None = None) -> None:
        """Without the second name of tied weights: gathered apart, the two no longer look like one to transformers."""
        if state_dict:
            once = {name for name, _ in self.model.named_parameters()}
            every = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
            state_dict = {name: value for name, value in state_dict.items() if name not in every - once}
        super()._save(output_dir, state_dict)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.also_saved is not None and self.args.should_save:
            self.also_saved.save(Path(output_dir))
        if self.strategy != "fsdp2":
            super()._save_optimizer_and_scheduler(output_dir)
            return
        from accelerate.utils import save_fsdp_optimizer

        plugin = self.accelerator.state.fsdp_plugin
        save_fsdp_optimizer(plugin, self.accelerator, self.optimizer, self.model, output_dir)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, SCHEDULER_NAME))


def set_rate(scheduler: Any, optimizer: Any, rate: float) -> None:
    """The rate of the step that comes next, by the schedule and the highest rate of now: a checkpoint brings its own along,
    which may have been those of a shorter run. Bit for bit what it brought where nothing has changed."""
    inner = getattr(scheduler, "scheduler", scheduler)  # in accelerate's wrapper
    if not isinstance(inner, torch.optim.lr_scheduler.LambdaLR):
        return
    inner.base_lrs = [rate] * len(inner.base_lrs)
    rates = [rate * factor(inner.last_epoch) for factor in inner.lr_lambdas]
    for group, now in zip(optimizer.param_groups, rates, strict=True):
        group["initial_lr"] = rate
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(now)
        else:
            group["lr"] = now
    inner._last_lr = [*rates]
