"""Wall and CPU seconds, by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


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
    """A point in time; only differences mean something."""
    return SpentTime(time.perf_counter(), time.process_time())


@contextmanager
def timed(into: dict[str, SpentTime], phase: str) -> Iterator[None]:
    """Count what happens inside to `phase`."""
    began = now()
    try:
        yield
    finally:
        into[phase] = into.get(phase, SpentTime()) + now() - began


def summed(earlier: Mapping[str, Any], spent: Mapping[str, SpentTime]) -> dict[str, dict[str, float]]:
    """For `run.json`: these phases, and what earlier processes of the run noted there."""
    before = {phase: SpentTime(said["wall_s"], said["cpu_s"]) for phase, said in earlier.items()}
    every = dict.fromkeys([*before, *spent])
    return {p: (before.get(p, SpentTime()) + spent.get(p, SpentTime())).as_json() for p in every}
