"""Keys and values of episodes between their turns, a row each, so that a turn only computes what was added since.

A call decodes in rows of its own, which are refilled and moved as ever: what an episode needs is copied there from the kept ones
at the start of its turn, and what the turn added is copied back at its end. That is as much as one decode step reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from grpo_cli.rollout.decoding.cache import CacheLayout, KeyValueStore
from grpo_cli.rollout.engine import CacheSlot, Request
from grpo_cli.rollout.graph.memory import free_bytes
from grpo_cli.rollout.graph.packed import zero_pages

if TYPE_CHECKING:
    from torch import Tensor

EPISODE_CACHE_SHARE = 0.5
"""Of the memory that is free beside the cache, at most this much becomes theirs."""


class EpisodeCache:
    """The kept columns of one play's episodes; those of another play are void, for weights may have moved since."""

    def __init__(self, layout: CacheLayout, episodes: int, columns: int) -> None:
        self.layout, self.episodes, self.columns = layout, episodes, columns
        self.play = -1
        self.ids: dict[int, list[int]] = {}
        self.keys = [_buffer(layout, episodes, columns, layout.key) for _ in range(layout.layers)]
        self.values = [_buffer(layout, episodes, columns, layout.value) for _ in range(layout.layers)]

    def holds(self, layout: CacheLayout, slot: CacheSlot) -> bool:
        """Whether it was made for as much."""
        return self.layout == layout and self.episodes >= slot.episodes and self.columns >= slot.columns

    def begin(self, play: int) -> None:
        """What another play has left is forgotten."""
        if play != self.play:
            self.play, self.ids = play, {}

    def known(self, request: Request) -> int:
        """How many columns of this request are kept: fewer than it has ids, for one must go through the model."""
        assert request.slot is not None
        ids = self.ids.get(request.slot.episode, [])
        return len(ids) if len(ids) < len(request.ids) and request.ids[: len(ids)] == ids else 0

    def save(
        self,
        store: KeyValueStore,
        rows: Tensor,
        requests: Sequence[Request],
        ids: Sequence[Sequence[int]],
        first: Sequence[int],
    ) -> None:
        """Rows of the store as what is kept of these requests.

        Args:
            store: the buffers of the call that ends, [rows, heads, columns, width] each.
            rows: [n] int64, the row of each request.
            requests: n of them, each of an episode.
            ids: the tokens that a row's columns stand for, from column 0.
            first: columns of each request that are kept already.
        """
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
    """A cache for the play of `slot`, the old one where it was made for as much; None where memory is short."""
    if old is None or not old.holds(layout, slot):
        free = free_bytes(layout.device)
        if (
            free is not None
            and layout.token_bytes * slot.episodes * slot.columns > free * EPISODE_CACHE_SHARE
        ):
            return None
        old = EpisodeCache(layout, slot.episodes, slot.columns)
    old.begin(slot.play)
    return old


def _buffer(layout: CacheLayout, rows: int, columns: int, shape: tuple[int, int]) -> Tensor:
    """[rows, heads, columns, width] of zeros: what a row does not hold is copied with the others, and must be finite."""
    import torch

    size = (rows, shape[0], columns, shape[1])
    if layout.device.type == "cpu":
        return zero_pages(prod(size), layout).view(size)
    return torch.zeros(size, dtype=layout.dtype, device=layout.device)
