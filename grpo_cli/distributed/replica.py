"""The whole policy in addition to its shards: what generates, is measured and is scored where each rank trains only a part.

It is brought up to date once after an optimizer step, before something reads it, in place: what an engine captured
stays good. In mixed precision it holds the very numbers that the forward pass of the shards computes with.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from grpo_cli.distributed.sharding import gathered
from grpo_cli.recipe.sections.course import splits_parameters

if TYPE_CHECKING:
    from grpo_cli.run.info import Level


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

    @classmethod
    def where_needed(
        cls, strategy: str, policy: nn.Module, compute_dtype: torch.dtype | None, note: Callable[[Level, str], None]
    ) -> Replica | None:
        """A replica under a strategy that splits parameters, with a note of what it takes; None elsewhere."""
        if not splits_parameters(strategy):
            return None
        made = cls(policy, compute_dtype)
        takes = f"a whole copy of the weights for rollouts takes {made.megabytes:,.0f} MiB on each process"
        note("info", f"`{strategy}`: {takes}")
        return made

    @property
    def megabytes(self) -> float:
        """What it takes on this rank."""
        return sum(float(p.numel() * p.element_size()) for p in self.model.parameters()) / 2**20

    @torch.no_grad()
    def follow(self, policy: nn.Module, updates: int) -> None:
        """Take the weights over as they are after that many optimizer steps; all ranks together."""
        if updates == self.updates:
            return
        for name, whole in gathered(policy):
            self.trained[name].copy_(whole)
        self.updates = updates
