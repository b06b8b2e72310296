"""Changes to transformers' trainer for sharded ranks: loading, saving, and switching the strategy on. Also sets the
learning rate of a resumed run whose number of steps has changed.

The weights of a checkpoint are a plain Hugging Face folder, the optimizer state stays sharded, in the same folder. With FSDP2 they
are the ones that are trained, and torch.distributed.checkpoint reads the state back on any number of ranks.
With DeepSpeed's ZeRO they are in the precision it computes in; it keeps those it trains with its state, and reads them back
on as many ranks as wrote them. With `zero1` weights and optimizer state are those of one process.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, save_fsdp_optimizer
from safetensors import safe_open
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from transformers.trainer import SCHEDULER_NAME
from trl import GRPOTrainer

from grpo_cli.distributed.exchange import FlatGradients
from grpo_cli.errors import DataError
from grpo_cli.recipe.sections.course import keeps_whole

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.distributed.replica import Replica
    from grpo_cli.recipe.sections.course import Strategy


ZERO_STAGE = {"zero2": 2, "zero3": 3}


def trainer_fields(strategy: Strategy) -> dict[str, Any]:
    """The fields of transformers' `TrainingArguments` that switch the engine on."""
    if strategy == "fsdp2":
        options = {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": True,
            "state_dict_type": "SHARDED_STATE_DICT",
            # every rank has loaded the same weights itself
            "cpu_ram_efficient_loading": False,
        }
        # gradients are shared out after each micro-batch: added up whole, they would be as large as the model
        return {
            "fsdp": True,
            "fsdp_config": options,
            "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}},
        }
    if strategy in ZERO_STAGE:
        zero: dict[str, Any] = {"stage": ZERO_STAGE[strategy], "contiguous_gradients": True, "overlap_comm": True}
        if strategy == "zero3":
            sizes = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
            zero |= dict.fromkeys(sizes, "auto")
            zero["stage3_gather_16bit_weights_on_model_save"] = True
        # "auto" is filled in by transformers from its own arguments
        config = {
            "zero_optimization": zero,
            "bf16": {"enabled": "auto"},
            "gradient_clipping": "auto",
            "gradient_accumulation_steps": "auto",
            "train_micro_batch_size_per_gpu": "auto",
            "train_batch_size": "auto",
            "zero_force_ds_cpu_optimizer": False,  # torch's optimizer, as with the other strategies
            "zero_allow_untested_optimizer": True,
            # never: its output would disturb the display
            "steps_per_print": 1 << 31,
        }
        return {"deepspeed": config}
    return {}


def _inner(optimizer: Any) -> Any:
    """Torch's optimizer in accelerate's and DeepSpeed's wrappers."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _without_masters(accelerator: Accelerator, *made: object) -> Any:
    """What accelerate makes of model and optimizer for FSDP2, the weights in the precision they have, as on one GPU: in mixed
    precision it trains copies in float32, which take twice the memory of all the rest."""
    state, prepare = accelerator.state, type(accelerator)._prepare_fsdp2
    was, state._mixed_precision = state._mixed_precision, "no"
    try:
        return prepare(accelerator, *made)
    finally:
        state._mixed_precision = was


class SharedState(ZeroRedundancyOptimizer):
    """Torch's, which each rank's share of the parameters has its state in, as accelerate and a checkpoint use it."""

    def state_dict(self) -> dict[str, Any]:
        """The state of all ranks after `consolidate_state_dict`; before it, when accelerate asks, one that is empty."""
        is_whole = bool(self._all_state_dicts)  # type: ignore[attr-defined]
        return super().state_dict() if is_whole else torch.optim.Optimizer.state_dict(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's share of a whole one."""
        super().load_state_dict(state_dict)
        # torch reads twice: in `optim` it leaves counts of steps on the CPU, where a fused optimizer does not look
        self.optim.state.update({p: self.state[p] for p in self.optim.state})
        self.state.clear()


class SavedWithModel(Protocol):
    """The interface of a module that learns next to the model, and is saved and loaded with it."""

    def save(self, checkpoint: Path) -> None: ...
    def load(self, checkpoint: Path) -> None: ...


class ShardedTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer under a `launch.strategy`; with `ddp` on one process every method is TRL's own."""

    also_saved: SavedWithModel | None = None

    def __init__(self, strategy: Strategy, replica: Replica | None, **more: object) -> None:
        self.strategy, self.replica = strategy, replica
        self._rank_memory: dict[str, float] = {}
        super().__init__(**more)
        self.gradients: FlatGradients | None = None
        if keeps_whole(strategy) and self.accelerator.num_processes > 1:
            self.gradients = FlatGradients([p for p in self.model.parameters() if p.requires_grad])

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Transformers' own; with `zero1` one that keeps the state of this rank's share of the parameters."""
        made: torch.optim.Optimizer = super().create_optimizer(model)
        if self.strategy == "zero1" and self.accelerator.num_processes > 1:
            kind, settings = self.get_optimizer_cls_and_kwargs(self.args, self.model)
            # no view of a bucket in a parameter's place: captured graphs and tied weights read it where it is
            made = SharedState(made.param_groups, kind, parameters_as_bucket_view=False, **settings)
            self.optimizer = made
        return made

    def create_accelerator_and_postprocess(self) -> None:
        """Have accelerate take its sharded path on gloo ranks of a CPU too, as on GPUs."""
        shared = PartialState._shared_state
        if self.strategy == "fsdp2" and shared.get("distributed_type") == DistributedType.MULTI_CPU:
            # accelerate looks for FSDP among accelerators alone, though nothing in it needs one
            shared["distributed_type"] = DistributedType.MULTI_GPU
        super().create_accelerator_and_postprocess()
        if self.strategy == "fsdp2" and all(p.dtype == torch.bfloat16 for p in self.model.parameters()):
            self.accelerator._prepare_fsdp2 = partial(_without_masters, self.accelerator)
        if keeps_whole(self.strategy) and self.accelerator.num_processes > 1:
            # what accelerate leaves out for a model that is evaluated is the wrapper of DDP alone
            self.accelerator.prepare_model = partial(self.accelerator.prepare_model, evaluation_mode=True)

    def _clip_grad_norm(self, model: nn.Module) -> torch.Tensor:
        if self.gradients is not None:
            # before they are clipped: each rank would clip its own by another norm. No recipe leaves clipping out
            self.gradients.average()
        norm: torch.Tensor = super()._clip_grad_norm(model)
        return norm

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """The weights of a plain folder, into a model that is not sharded yet; afterwards they are there already."""
        if self.also_saved is not None:
            self.also_saved.load(Path(resume_from_checkpoint))
        if any(isinstance(p, DTensor) for p in self.model.parameters()):
            return
        was, self.is_fsdp_enabled = self.is_fsdp_enabled, False  # type: ignore[has-type]
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        finally:
            self.is_fsdp_enabled = was
        base: Any = self.accelerator.unwrap_model(self.model)
        saved = set[str]()
        for file in Path(resume_from_checkpoint).glob("model*.safetensors"):
            with safe_open(file, "pt") as tensors:
                saved.update(tensors.keys())
        if saved - base.state_dict().keys():
            # transformers writes some models, such as those that read images, under other names than it keeps them; its trainer
            # leaves out what is named otherwise, without a word
            dtype = next(base.parameters()).dtype
            whole = type(base).from_pretrained(resume_from_checkpoint, dtype=dtype, trust_remote_code=False)
            base.load_state_dict(whole.state_dict(), strict=False)
        if self.replica:
            # a count that no run has: the next reader copies the weights that were loaded
            self.replica.updates = -1

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        try:
            super()._load_optimizer_and_scheduler(checkpoint)
        except pickle.UnpicklingError as err:  # load tensors only: other objects could run code
            raise DataError(
                "the state of the optimizer holds more than numbers, so it is not read",
                place=str(checkpoint),
                hint="begin a run of its own from the weights: `model.path` may name this folder",
            ) from err
        # set the rate of the next step from the current schedule and peak rate: the checkpoint's values may be those of
        # a shorter run. If nothing has changed, the rate is bit for bit that of the checkpoint
        inner: Any = getattr(self.lr_scheduler, "scheduler", self.lr_scheduler)  # in accelerate's wrapper
        if checkpoint is None or not isinstance(inner, torch.optim.lr_scheduler.LambdaLR):
            return
        rate = self.args.learning_rate
        inner.base_lrs = [rate] * len(inner.base_lrs)
        rates = [rate * factor(inner.last_epoch) for factor in inner.lr_lambdas]
        for group, now in zip(self.optimizer.param_groups, rates, strict=True):
            group["initial_lr"] = rate
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(now)
            else:
                group["lr"] = now
        inner._last_lr = [*rates]

    def sync_weights(self) -> None:
        """Update the copy that generates; does nothing if the engine reads the weights in place."""
        if self.replica is not None:
            self.replica.follow(self.model, self.state.global_step)

    @property
    def whole(self) -> nn.Module:
        """The model that scores outside the loss: the policy itself, or its replica."""
        model: nn.Module = self.replica.model if self.replica else self.model
        return model

    def rank_memory(self) -> dict[str, float]:
        """Parameters and optimizer state that one of several processes holds (rank 0's share), measured after the first update."""
        # which makes the optimizer's state; a batch without signal is none (DeepSpeed steps on it all the same)
        own = _inner(self.optimizer)
        optimizer = getattr(own, "optim", own)  # of a share of the parameters
        updated = self.strategy in ZERO_STAGE or optimizer.state
        if self._rank_memory or not updated or self.accelerator.num_processes == 1:
            return self._rank_memory
        tensors: list[torch.Tensor] = [*self.model.parameters()]
        wrapper = self.optimizer
        while hasattr(wrapper, "optimizer"):
            tensors += getattr(wrapper, "fp32_partitioned_groups_flat", [])  # what ZeRO-3 trains
            wrapper = wrapper.optimizer
        tensors += [p for group in optimizer.param_groups for p in group["params"]]  # the same of ZeRO-2
        tensors += [v for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v)]
        # once each, by identity; of a split tensor the part that lies here (ZeRO-3 leaves an empty one and keeps its share in it)
        here = {id(t): t.to_local() if isinstance(t, DTensor) else getattr(t, "ds_tensor", t) for t in tensors}
        self._rank_memory = {"memory/held_mib": sum(t.numel() * t.element_size() for t in here.values()) / 2**20}
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
        if isinstance(own := _inner(self.optimizer), SharedState):
            own.consolidate_state_dict(0)  # the file is that of one process, which any number of them reads
        if self.strategy != "fsdp2":
            super()._save_optimizer_and_scheduler(output_dir)
            return
        plugin = self.accelerator.state.fsdp_plugin
        save_fsdp_optimizer(plugin, self.accelerator, self.optimizer, self.model, output_dir)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, SCHEDULER_NAME))
