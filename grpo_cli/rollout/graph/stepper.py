"""Runs decode steps. The eager form runs one step on exactly the running rows. The captured form runs several steps on
a bucket of rows, so that the host reads results less often.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from grpo_cli.rollout.decoding.state import Batch, decode

if TYPE_CHECKING:
    from grpo_cli.rollout.decoding.rollout_mode import Forward


class EagerStepper:
    """One step a call, on exactly the running rows."""

    steps = 1
    refill_share = 1 / 8
    """Share of the rows that must be free before waiting samples start."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward

    def width(self, rows: int) -> int:
        """The number of rows that a call for `rows` rows computes."""
        return rows

    def run(self, batch: Batch, rows: int, shortest: int, longest: int) -> None:
        """`steps` tokens for the first `rows` rows, whose next columns lie between `shortest` and `longest`."""
        length = batch.store.reach(longest + 1, rows)
        # if all rows have the same length they see all columns, and no mask is needed
        masked = shortest + 1 < length
        decode(batch, self.forward, rows, length, masked=masked, column=longest if shortest == longest else None)


# Decode steps as CUDA graphs, one for each (settings, rows, columns) bucket. A graph reads the weights
# where they lie, so it follows the optimizer's in-place updates; it goes with its batch, which is made anew
# when a weight moves.

# more buckets for few rows, where a step's time grows with the rows; each graph costs capture time and memory
ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
COLUMN_BUCKET = 128

Replay = Callable[[], None]
Capture = Callable[[Callable[[], None]], Replay]


class GraphStepper:
    """`steps` replays between two reads by the host; rows that end in between are idle until then. A prefill is
    launched kernel by kernel and costs as much as twenty replays, so several free rows are refilled together."""

    refill_share = 1 / 2

    def __init__(self, forward: Forward, *, steps: int = 8, capture: Capture | None = None) -> None:
        self.forward, self.steps = forward, steps
        self.capture = capture or GraphPool().capture
        self.captures, self.capture_seconds = 0, 0.0

    def width(self, rows: int) -> int:
        """The bucket."""
        index = bisect_left(ROW_BUCKETS, rows)
        return ROW_BUCKETS[index] if index < len(ROW_BUCKETS) else -(-rows // 256) * 256

    def run(self, batch: Batch, rows: int, shortest: int, longest: int) -> None:
        """`steps` tokens, by a graph that is captured when first needed."""
        store = batch.store
        rows = min(self.width(rows), store.rows)
        length = store.columns
        if store.attention is None:
            # plain attention reads all columns, so its graphs have buckets of columns; fused attention stops at each
            # row's last column, so one graph serves every length
            length = min(length, -(-(longest + self.steps) // COLUMN_BUCKET) * COLUMN_BUCKET)
            store.reach(length)
        replay = batch.graphs.get((rows, length))
        if replay is None:
            start = time.perf_counter()
            step = partial(decode, batch, self.forward, rows, length, masked=True)
            # once before the capture, so that kernels are built and workspaces made, then undone. The step runs on the live
            # rows and moves them on: what it wrote out is written again, equal, after the restore
            before = batch.rows.snapshot()
            seen = None if batch.seen is None else batch.seen.clone()
            step()
            batch.rows.restore(before)
            if batch.seen is not None and seen is not None:
                batch.seen.copy_(seen)
            replay = batch.graphs[rows, length] = self.capture(step)
            self.captures += 1
            self.capture_seconds += time.perf_counter() - start
        for _ in range(self.steps):
            replay()


Stepper = EagerStepper | GraphStepper


class GraphPool:
    """One memory pool for all graphs: they never run at the same time, and nothing in it outlives a replay. A pool
    whose graphs are all deleted cannot be reused."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.graphs: WeakSet[Any] = WeakSet()

    def capture(self, step: Callable[[], None]) -> Replay:
        """Records what `step` launches; the replay launches it again."""
        import torch

        torch.cuda.synchronize()
        # a weak set: it is empty once every batch that held graphs of this pool is gone
        if not self.graphs:
            self.handle = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.handle):
            step()
        self.graphs.add(graph)
        replay: Replay = graph.replay
        return replay
