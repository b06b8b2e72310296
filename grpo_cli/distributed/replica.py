"""A full copy of a sharded policy, which generates, is evaluated and scores when each rank trains only a part.

It is updated once after an optimizer step, before it is read, and in place, so that captured graphs stay valid. In
mixed precision it has exactly the weights that the shards' forward pass uses.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


class Replica:
    """A plain model of its own, in the dtype `compute_dtype` where training computes in that, else in the policy's."""

    def __init__(self, policy: nn.Module, compute_dtype: torch.dtype | None) -> None:
        copies = dict[int, nn.Parameter]()
        for p in policy.parameters():
            kind = compute_dtype if compute_dtype is not None and p.is_floating_point() else p.dtype
            copies[id(p)] = nn.Parameter(p.detach().to(kind, copy=True), requires_grad=p.requires_grad)
        # with our parameters in the memo: modules and buffers are copied, and tied weights stay tied
        self.model: Any = copy.deepcopy(policy, copies)
        self.trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.updates = 0
        self.megabytes = sum(float(p.numel() * p.element_size()) for p in self.model.parameters()) / 2**20

    @torch.no_grad()
    def follow(self, policy: nn.Module, updates: int) -> None:
        """Copy the weights as of this number of optimizer steps; all ranks call it together, and it copies one
        parameter at a time."""
        if updates == self.updates:
            return
        for module in policy.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # a forward pass without a backward leaves some whole, in the precision it ran in
        for name, parameter in policy.named_parameters():
            if not parameter.requires_grad:
                continue
            if isinstance(parameter, DTensor):
                self.trained[name].copy_(parameter.full_tensor())
            elif hasattr(parameter, "ds_id"):  # DeepSpeed's
                import deepspeed

                with deepspeed.zero.GatheredParameters([parameter]):
                    self.trained[name].copy_(parameter.detach())
            else:
                self.trained[name].copy_(parameter.detach())
        self.updates = updates
