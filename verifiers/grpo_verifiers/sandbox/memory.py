"""Memory of all processes of a run together, looked at from outside: each limits itself, and shared memory is nobody's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from grpo_verifiers.sandbox.lane import Lane, LaneFailed

FILES_MB = 256  # programs and their libraries, which are mapped and not theirs
COUNTED = ("RssAnon:", "RssShmem:")


class MemoryWatch:
    """Called now and then while a lane runs; asks for the end of the run once its processes hold more than their limit."""

    def __init__(self, lane: Lane, memory_mb: int) -> None:
        self.lane, self.memory_mb, self.is_over = lane, memory_mb, False

    def __call__(self) -> None:
        """Look once."""
        if not self.is_over and held_kb(self.lane.process.pid) > self.memory_mb << 10:
            self.is_over = True
            with contextlib.suppress(LaneFailed):
                self.lane.tell({"op": "stop"})

    def judge(self, peak_kb: int) -> bool:
        """Whether the run went over its limit, also where it was too short to be looked at."""
        return self.is_over or peak_kb > (self.memory_mb + FILES_MB) << 10


def held_kb(pid: int) -> int:
    """Anonymous and shared memory of the descendants of a process, in KiB; 0 where nothing can be seen of them."""
    total = 0
    for child in descendants(pid):
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
            status = (child / "status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in status if line.startswith(COUNTED))
    return total


def descendants(pid: int) -> Iterator[Path]:
    """The folders in `/proc` of the descendants of a process; none where nothing can be seen of them."""
    waiting = [pid]
    while waiting:
        at = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError, ValueError):
            for listed in at.glob("task/*/children"):
                for child in map(int, listed.read_text().split()):
                    waiting.append(child)
                    yield Path(f"/proc/{child}")
