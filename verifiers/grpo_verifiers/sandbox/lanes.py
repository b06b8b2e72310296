"""The lanes of a process: started when first needed, shared by all threads, replaced when they fail or grow old.

Lanes of a forked copy of this process are never used there: the copy starts its own.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from grpo_verifiers.processes.linked import end_with
from grpo_verifiers.processes.pool import allowed_cores
from grpo_verifiers.sandbox.folder import ScratchFolder
from grpo_verifiers.sandbox.lane import Lane, LaneFailed

T = TypeVar("T")
RUNS_OF_A_LANE = 20_000
RUNS_OF_A_TESTER = 2_000


def default_count() -> int:
    """Cores this process may use, less one for each GPU it can see, at least one."""
    cores = allowed_cores()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        gpus = len([v for v in visible.split(",") if v.strip() and v.strip() != "-1"])
    else:
        gpus = len([n for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit()])
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    return max(1, (cores - gpus) // max(1, ranks))


class LaneSlot:
    """What one worker uses: a lane of each kind and a tester of each kind, started at first use."""

    def __init__(self, tier: str, shown: tuple[str, ...] = ()) -> None:
        self.tier, self.shown = tier, shown
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._scratch: ScratchFolder | None = None

    def lane(self, kind: str, role: str = "runner") -> Lane:
        """A lane that is alive.

        Raises:
            LaneFailed: it does not start.
        """
        lane = self._lanes.get((kind, role))
        most = RUNS_OF_A_TESTER if role == "tester" else RUNS_OF_A_LANE
        if lane is not None and lane.is_open and lane.runs >= most:
            lane.close()
        if lane is None or not lane.is_open:
            lane = self._lanes[kind, role] = Lane(self.tier, kind, role, self._scratch_path(), self.shown)
        return lane

    def attempt(self, run: Callable[[LaneSlot], T]) -> T:
        """What `run` returns in this slot; after a fault of the sandbox it is tried once more, in fresh lanes.

        Raises:
            LaneFailed, OSError: they broke as well.
        """
        for is_last in (False, True):
            try:
                return run(self)
            except (LaneFailed, OSError):
                self.discard()
                if is_last:
                    raise
            except BaseException:
                # an interrupt leaves lanes in the middle of a run: the next one must not find them so
                self.discard()
                raise
        raise AssertionError("not reached")

    def _scratch_path(self) -> str:
        """The folder that the lanes of this slot share, empty; "" in tiers that have their own or none."""
        if self.tier != "landlock":
            return ""
        if self._scratch is None:
            self._scratch = ScratchFolder()
        self._scratch.empty()
        return self._scratch.path

    def discard(self) -> None:
        """End all lanes of the slot; the next use starts fresh ones."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None


class Lanes:
    """`count` slots; `slot()` waits for a free one. Programs of other languages may read the folders in `shown`."""

    def __init__(self, tier: str, count: int, shown: tuple[str, ...] = ()) -> None:
        self.tier, self.count = tier, count
        self._pid = os.getpid()
        self._free: queue.LifoQueue[LaneSlot] = queue.LifoQueue()
        self._slots = [LaneSlot(tier, shown) for _ in range(count)]
        for slot in self._slots:
            self._free.put(slot)
        self._finalizer = end_with(self, _close, self._slots)

    @property
    def is_ours(self) -> bool:
        """False in a forked copy of the process that made the lanes."""
        return self._pid == os.getpid()

    @contextlib.contextmanager
    def slot(self) -> Iterator[LaneSlot]:
        """A slot of one's own for a while."""
        slot = self._free.get()
        try:
            yield slot
        finally:
            self._free.put(slot)

    def warm(self) -> None:
        """Start a plain lane in every slot."""
        threads = [threading.Thread(target=slot.lane, args=("plain",), daemon=True) for slot in self._slots]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """End all lanes."""
        self._finalizer()


def _close(slots: list[LaneSlot]) -> None:
    for slot in slots:
        slot.discard()
