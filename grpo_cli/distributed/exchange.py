"""What ranks exchange while they learn: weights once at the start, gradients and statistics once an optimizer step.

How this works. No rank that holds the whole model wraps it: torch's DDP counts on hooks of autograd, and a replayed graph
runs none, so that ranks would drift apart without an error. The gradients of a rank are views of one flat buffer for each type of number, `FlatGradients`.
Whatever computes them, a captured graph or a plain backward pass, adds into the views, so that a rank may fall back from one to the
other alone. Once they are complete, and before they are clipped, `average` exchanges the buffers in slices. Only gradients
are flat: a rollout points the weights at merged copies of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn

ALIGNED = 512
"""Bytes: a view begins at a multiple, as a tensor of its own would."""
SLICE = 64 << 20
"""Elements exchanged at once."""


class FlatGradients:
    """The gradients of `parameters` in as few buffers as they have types; `views` are in the order of the parameters."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        kinds: dict[tuple[torch.dtype, torch.device], int] = {}
        starts = []
        for p in self.parameters:
            kind, step = (p.dtype, p.device), ALIGNED // p.element_size()
            starts.append(kinds.get(kind, 0))
            kinds[kind] = starts[-1] + -(-p.numel() // step) * step
        buffers = {kind: torch.zeros(size, dtype=kind[0], device=kind[1]) for kind, size in kinds.items()}
        self.buffers = list(buffers.values())
        self.views = [
            buffers[p.dtype, p.device][start : start + p.numel()].view_as(p)
            for p, start in zip(self.parameters, starts, strict=True)
        ]

    def collect(self) -> None:
        """Make the views the parameters' gradients, as `collect` does."""
        collect(self.parameters, self.views)

    def average(self) -> None:
        """The mean over all ranks in place of this rank's gradients; every rank calls it, also one that learned nothing."""
        # a parameter that no loss reached has no gradient: here it is one of 0
        self.collect()
        # losses are divided by a rank's part of the tokens of all, N / ranks, so the mean is the gradient of the whole
        has_mean = dist.get_backend() == "nccl"
        for buffer in self.buffers:
            for part in torch.split(buffer, SLICE):
                dist.all_reduce(part, dist.ReduceOp.AVG if has_mean else dist.ReduceOp.SUM)
            if not has_mean:
                buffer /= dist.get_world_size()


def collect(parameters: Sequence[nn.Parameter], sums: Sequence[Tensor | None]) -> None:
    """Make these buffers, each of its parameter's shape and type, the gradients; those that are None start at 0, others stay
    what they are."""
    fresh = []
    for parameter, total in zip(parameters, sums, strict=True):
        if total is None or parameter.grad is total:
            continue
        if parameter.grad is None:
            fresh.append(total)
        else:
            total.copy_(parameter.grad)
        parameter.grad = total
    if fresh:
        torch._foreach_zero_(fresh)


class LocalStatistics:
    """An accelerator while a loss is computed: what TRL would gather or reduce for its log stays this rank's own.

    Nothing waits for other ranks there, and they may have other rows; `UpdateMetrics` puts the ranks together once an optimizer step.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self.accelerator, name)

    def gather(self, value: Tensor) -> Tensor:
        """The value, of any shape."""
        return value

    gather_for_metrics = gather

    def reduce(self, value: Tensor, reduction: str = "sum") -> Tensor:
        """The value, of any shape."""
        return value


def take_weights(model: nn.Module) -> None:
    """Bring weights and buffers of every rank to those of rank 0."""
    for tensor in chain(model.parameters(), model.buffers()):
        dist.broadcast(tensor.detach(), 0)
