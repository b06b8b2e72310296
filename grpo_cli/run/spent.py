"""Wall and CPU seconds, by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpentTime:
    """Seconds on the clock, and seconds of all cores that this process computed; workers of verifiers are not in it."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: SpentTime) -> SpentTime:
        return SpentTime(self.wall + other.wall, self.cpu + other.cpu)

    def __sub__(self, other: SpentTime) -> SpentTime:
        return SpentTime(self.wall - other.wall, self.cpu - other.cpu)

    def least(self, floor: float) -> SpentTime:
        """Neither below `floor`."""
        return SpentTime(max(self.wall, floor), max(self.cpu, floor))

    def as_json(self) -> dict[str, float]:
        """As in `run.json`."""
        return {"wall_s": round(self.wall, 3), "cpu_s": round(self.cpu, 3)}


def now() -> SpentTime:
    """A point in time; only differences have a meaning."""
    return SpentTime(time.perf_counter(), time.process_time())


@contextmanager
def timed(into: dict[str, SpentTime], phase: str) -> Iterator[None]:
    """Count what happens inside to `phase`."""
    began = now()
    try:
        yield
    finally:
        into[phase] = into.get(phase, SpentTime()) + now() - began
