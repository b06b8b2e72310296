"""Parameters, gradients and optimizer state spread over the ranks, by the engines there are: accelerate's FSDP2 and
DeepSpeed's ZeRO.

The trainer, its optimizer and its clipping stay theirs. What is added here lets accelerate's path run on gloo ranks of
a CPU too, so that what a GPU run does is what the tests do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from transformers import TrainingArguments

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
        return {"fsdp": True, "fsdp_config": options}
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
            # never: what it prints would go between the lines of the display
            "steps_per_print": 1 << 31,
        }
        return {"deepspeed": config}
    return {}


def set_precision(args: TrainingArguments, strategy: Strategy, bf16: bool) -> None:
    """In half precision: parameters travel and compute in bfloat16, gradients are summed in float32.

    Left to itself accelerate also sums gradients and hands out log-probs in bfloat16.
    """
    if strategy == "fsdp2" and bf16:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        args.fsdp_plugin_args["mixed_precision_policy"] = policy


def open_path(strategy: Strategy) -> None:
    """Let the accelerator that is made next take accelerate's sharded path on gloo ranks of a CPU, as on GPUs."""
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    shared = PartialState._shared_state
    if strategy == "fsdp2" and shared.get("distributed_type") == DistributedType.MULTI_CPU:
        # accelerate looks for FSDP among accelerators alone, though nothing in it needs one
        shared["distributed_type"] = DistributedType.MULTI_GPU


def mark_whole(head: nn.Module) -> None:
    """Mark a head as whole for TRL, which under ZeRO-3 gathers the head of any model."""
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

    for parameter in head.parameters():
        parameter.ds_status = ZeroParamStatus.AVAILABLE  # type: ignore[attr-defined]


def gathered(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Each trained parameter whole, in the shape it has on one device, one at a time; every rank must go through all of them.

    What is yielded may be freed when the next one is asked for: copy what is kept.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # a forward pass without a backward leaves some whole, in the precision it ran in
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if isinstance(parameter, DTensor):
            yield name, parameter.full_tensor()
        elif hasattr(parameter, "ds_id"):
            import deepspeed

            with deepspeed.zero.GatheredParameters([parameter]):
                yield name, parameter.detach()
        else:
            yield name, parameter.detach()


def bytes_of_rank(model: nn.Module, optimizer: Optimizer) -> int:
    """Bytes of parameters and optimizer state that lie on this rank."""
    tensors: list[Tensor] = [*model.parameters()]
    while hasattr(optimizer, "optimizer"):  # accelerate's and DeepSpeed's wrappers
        tensors += getattr(optimizer, "fp32_partitioned_groups_flat", [])  # what ZeRO-3 trains
        optimizer = optimizer.optimizer
    tensors += [p for group in optimizer.param_groups for p in group["params"]]  # the same of ZeRO-2
    tensors += [v for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v)]
    # once each, by identity; of a split tensor the part that lies here (ZeRO-3 leaves an empty one and keeps its share in it)
    here = {id(t): t.to_local() if isinstance(t, DTensor) else getattr(t, "ds_tensor", t) for t in tensors}
    return sum(t.numel() * t.element_size() for t in here.values())
