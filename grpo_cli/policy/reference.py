"""The model the run started from, for KL terms and the KL monitor.

Kept as a copy of the trained parameters alone (all of them, or a LoRA adapter's few) and swapped in for a forward
pass: no second model, and an adapter that was warmed up is compared with its warmed-up self.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


class Reference:
    """A frozen copy of a model's trainable parameters; `offload` keeps it in main memory between uses."""

    def __init__(self, model: nn.Module, *, offload: bool = False) -> None:
        # what is frozen is the same in both, and is held once
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.frozen = [p.detach().to("cpu" if offload else p.device, copy=True) for p in self.trained]

    @property
    def megabytes(self) -> float:
        """What the copy takes."""
        return sum(float(f.numel() * f.element_size()) for f in self.frozen) / 2**20

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The model is the reference inside; afterwards it has its own tensors back, at the same addresses."""
        # `.data` and not a copy: an optimizer, a captured graph and DDP's buckets hold these very tensors
        own = [p.data for p in self.trained]
        try:
            for p, f in zip(self.trained, self.frozen, strict=True):
                p.data = f.to(p.device, p.dtype)
            yield
        finally:
            for p, data in zip(self.trained, own, strict=True):
                p.data = data
