"""Memory for keys and values: how many rows fit, the cache's layout on a CPU, and the cache that outlives a call.

How this works: `rows_that_fit` divides a share of the free memory by the size of a row of the call. On a CPU the rows
live in a `PackedStore`, elsewhere in the plain `KeyValueStore`. Episodes have an `EpisodeCache` in addition, a row for
each episode: a turn's rows are loaded from it at the start and saved to it at the end, so that only new tokens go
through the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.errors import SetupError
from grpo_cli.rollout.decoding.cache import CacheLayout, KeyValueStore
from grpo_cli.rollout.engine import CacheSlot, Request

if TYPE_CHECKING:
    import torch
    from torch import Tensor


# How many rows of cache fit. A row that does not fit is not started; a call for which not even one fits is
# refused before any work.

SHARE = 0.6
"""Of the free memory, at most this much becomes cache: the forward pass itself and the training step need the rest."""


def free_bytes(device: torch.device) -> int | None:
    """Bytes of memory available on the device now; None if this cannot be read."""
    if device.type == "cuda":
        import torch

        free, whole = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_allocated(device)
        # memory that torch has reserved but does not use is available too; a cap of the process counts all that torch holds
        cap = int(torch.cuda.get_per_process_memory_fraction(device) * whole)
        return int(min(free + torch.cuda.memory_reserved(device), cap)) - held
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def rows_that_fit(layout: CacheLayout, wanted: int, columns: int, budget: int | None) -> int:
    """At most `wanted` rows of `columns` columns within `budget` bytes; SetupError when not one fits."""
    if budget is None:
        return wanted
    row = layout.token_bytes * columns
    if row > budget:
        raise SetupError(
            f"the cache of one sample of {columns} tokens needs {_size(row)}, and {_size(budget)} are free for it",
            hint="lower `sample.max_tokens`, or use a smaller model",
        )
    return int(min(wanted, budget // row))


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} GiB"


# The cache on a CPU is only as wide as the currently longest sample, and is widened in steps. A decode step then reads
# contiguous memory: torch multiplies non-contiguous batches at a third of the speed.

WIDER_BY, WIDER_SHARE = 8, 8
"""Fewest columns added at once, and the share of the width added: copying then costs little compared with reading."""


class PackedStore(KeyValueStore):
    """`keys` and `values` are [rows, heads, live, width]. Columns never written are 0 and cost no memory."""

    def __init__(self, layout: CacheLayout, rows: int, columns: int) -> None:
        self.layout, self.rows, self.columns = layout, rows, columns
        self.attention = None
        self.live = 0
        size = rows * columns * max(heads * width for heads, width in (layout.key, layout.value))
        self._keys, self._values = ([zero_pages(size, layout) for _ in range(layout.layers)] for _ in range(2))
        # receives the widened copy; each buffer may become the spare one in turn
        self._spare = zero_pages(size, layout)
        self._show()

    def restart(self) -> None:
        """Nothing stored is needed any more."""
        self.live = 0
        self._show()

    def reach(self, columns: int, rows: int | None = None) -> int:
        """Widens to at least `columns`, keeping what the first `rows` rows hold; returns the width."""
        if columns > self.live:
            wider = self.live + max(WIDER_BY, self.live // WIDER_SHARE)
            before, self.live = self.live, min(self.columns, max(columns, wider))
            for flats, (heads, width) in ((self._keys, self.layout.key), (self._values, self.layout.value)):
                for layer, flat in enumerate(flats):
                    if before:
                        new, old = (
                            self._view(f, heads, w, width) for f, w in ((self._spare, self.live), (flat, before))
                        )
                        # into another buffer: widening in place would overwrite what is still to be read
                        new[:rows, :, :before] = old[:rows]
                        flats[layer], self._spare = self._spare, flat
            self._show()
        return self.live

    def _view(self, flat: Tensor, heads: int, columns: int, width: int) -> Tensor:
        return flat[: self.rows * heads * columns * width].view(self.rows, heads, columns, width)

    def _show(self) -> None:
        (key_heads, key_width), (value_heads, value_width) = self.layout.key, self.layout.value
        self.keys = [self._view(flat, key_heads, self.live, key_width) for flat in self._keys]
        self.values = [self._view(flat, value_heads, self.live, value_width) for flat in self._values]


def zero_pages(numbers: int, layout: CacheLayout) -> Tensor:
    """[numbers] zeros of the layout's dtype in memory that the system allocates at the first write, unlike
    `torch.zeros`: columns that no sample reaches cost no memory.

    Raises:
        RuntimeError: there is not enough memory; the message begins with `out of memory`.
    """
    import numpy as np
    import torch

    try:
        pages = np.zeros(numbers * layout.dtype.itemsize, dtype=np.uint8)
    except MemoryError as err:
        raise RuntimeError(f"out of memory: {err}") from err
    return torch.from_numpy(pages).view(layout.dtype)


# Keys and values of episodes between their turns, a row each, so that a turn only computes what was added
# since.

EPISODE_CACHE_SHARE = 0.5
"""Largest share of the memory left by the cache that is used for episodes."""


class EpisodeCache:
    """The kept columns of one play's episodes. Columns of another play are invalid, because the weights may have
    changed."""

    def __init__(self, layout: CacheLayout, episodes: int, columns: int) -> None:
        self.layout, self.episodes, self.columns = layout, episodes, columns
        self.play = -1
        self.ids: dict[int, list[int]] = {}
        self.keys = [_buffer(layout, episodes, columns, layout.key) for _ in range(layout.layers)]
        self.values = [_buffer(layout, episodes, columns, layout.value) for _ in range(layout.layers)]

    def known(self, request: Request) -> int:
        """Number of kept columns for this request; always fewer than its ids, because at least one must go through the
        model."""
        assert request.slot is not None
        ids = self.ids.get(request.slot.episode, [])
        # compare the ids: keys of other tokens would be used without an error
        return len(ids) if len(ids) < len(request.ids) and request.ids[: len(ids)] == ids else 0

    def save(
        self,
        store: KeyValueStore,
        rows: Tensor,
        requests: Sequence[Request],
        ids: Sequence[Sequence[int]],
        first: Sequence[int],
    ) -> None:
        """Save rows of the store as the kept columns of these requests.

        Args:
            store: the buffers of the call that ends, [rows, heads, columns, width] each.
            rows: [n] int64, the row of each request.
            requests: n of them, each of an episode.
            ids: the tokens of a row's columns, from column 0.
            first: columns of each request that are kept already.
        """
        # copy the same range for all rows: columns that were kept already are overwritten with equal values
        start, end = min(first), min(self.columns, max(map(len, ids)))
        episodes = self._episodes(requests, rows)
        for kept, live in ((self.keys, store.keys), (self.values, store.values)):
            for target, source in zip(kept, live, strict=True):
                target[episodes, :, start:end] = source[rows, :, start:end]
        for request, found in zip(requests, ids, strict=True):
            assert request.slot is not None
            self.ids[request.slot.episode] = list(found)

    def load(self, store: KeyValueStore, rows: Tensor, requests: Sequence[Request], columns: int) -> None:
        """The first `columns` columns of these requests into `rows` [n] of the store."""
        episodes = self._episodes(requests, rows)
        for kept, live in ((self.keys, store.keys), (self.values, store.values)):
            for source, target in zip(kept, live, strict=True):
                target[rows, :, :columns] = source[episodes, :, :columns]

    def _episodes(self, requests: Sequence[Request], rows: Tensor) -> Tensor:
        import torch

        found = [request.slot.episode for request in requests if request.slot is not None]
        return torch.tensor(found, device=rows.device)


def episode_cache_for(old: EpisodeCache | None, layout: CacheLayout, slot: CacheSlot) -> EpisodeCache | None:
    """A cache for the play of `slot`: the old one if it is large enough; None if there is too little memory."""
    kept = old is not None and old.layout == layout and old.episodes >= slot.episodes and old.columns >= slot.columns
    if old is None or not kept:
        free = free_bytes(layout.device)
        if free is not None and layout.token_bytes * slot.episodes * slot.columns > free * EPISODE_CACHE_SHARE:
            return None
        old = EpisodeCache(layout, slot.episodes, slot.columns)
    if slot.play != old.play:
        old.play, old.ids = slot.play, {}
    return old


def _buffer(layout: CacheLayout, rows: int, columns: int, shape: tuple[int, int]) -> Tensor:
    """[rows, heads, columns, width] zeros: unused columns are copied along and must be finite."""
    import torch

    size = (rows, shape[0], columns, shape[1])
    if layout.device.type == "cpu":
        return zero_pages(prod(size), layout).view(size)
    return torch.zeros(size, dtype=layout.dtype, device=layout.device)
