"""The cache of a CPU: as wide as the longest sample is now, widened in steps, so that what a decode step reads lies in
one piece. torch multiplies batches that do not at a third of the speed, and memory is read in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_cli.rollout.decoding.cache import CacheLayout, KeyValueStore

if TYPE_CHECKING:
    from torch import Tensor

WIDER_BY, WIDER_SHARE = 8, 8
"""Columns added at least, and the part of the width added: copying stays a small part of what is read anyway."""


class PackedStore(KeyValueStore):
    """`keys` and `values` are [rows, heads, live, width]. What was never written is 0 and costs no memory."""

    def __init__(self, layout: CacheLayout, rows: int, columns: int) -> None:
        self.layout, self.rows, self.columns = layout, rows, columns
        self.attention = None
        self.live = 0
        size = rows * columns * max(heads * width for heads, width in (layout.key, layout.value))
        self._keys, self._values = (
            [zero_pages(size, layout) for _ in range(layout.layers)] for _ in range(2)
        )
        self._spare = zero_pages(size, layout)  # takes the widened copy; any buffer may become the spare one
        self._show()

    def restart(self) -> None:
        """Nothing stored is needed any more."""
        self.live = 0
        self._show()

    def reach(self, columns: int, rows: int | None = None) -> int:
        """Widens to at least `columns`, keeping what the first `rows` rows hold; returns the width."""
        if columns > self.live:
            before, self.live = self.live, min(self.columns, max(columns, self._wider()))
            for flats, (heads, width) in ((self._keys, self.layout.key), (self._values, self.layout.value)):
                for layer, flat in enumerate(flats):
                    if before:
                        new, old = (
                            self._view(f, heads, w, width)
                            for f, w in ((self._spare, self.live), (flat, before))
                        )
                        new[:rows, :, :before] = old[:rows]
                        flats[layer], self._spare = self._spare, flat
            self._show()
        return self.live

    def _wider(self) -> int:
        return self.live + max(WIDER_BY, self.live // WIDER_SHARE)

    def _view(self, flat: Tensor, heads: int, columns: int, width: int) -> Tensor:
        return flat[: self.rows * heads * columns * width].view(self.rows, heads, columns, width)

    def _show(self) -> None:
        (key_heads, key_width), (value_heads, value_width) = self.layout.key, self.layout.value
        self.keys = [self._view(flat, key_heads, self.live, key_width) for flat in self._keys]
        self.values = [self._view(flat, value_heads, self.live, value_width) for flat in self._values]


def zero_pages(numbers: int, layout: CacheLayout) -> Tensor:
    """[numbers] zeros of the layout's type, in pages that the system hands out when they are first written, as torch's own
    zeros are not: what no sample reaches costs no memory.

    Raises:
        RuntimeError: there is not so much memory; the message begins with `out of memory`.
    """
    import numpy as np
    import torch

    try:
        pages = np.zeros(numbers * layout.dtype.itemsize, dtype=np.uint8)
    except MemoryError as err:
        raise RuntimeError(f"out of memory: {err}") from err
    return torch.from_numpy(pages).view(layout.dtype)
