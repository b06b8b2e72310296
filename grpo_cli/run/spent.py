"""Wall and CPU seconds, by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds on the clock, and seconds of all cores that this process computed; workers of verifiers are not in it."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.wall + other.wall, self.cpu + other.cpu)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.wall - other.wall, self.cpu - other.cpu)

    def least(self, floor: float) -> Spent:
        """Neither below `floor`."""
        return Spent(max(self.wall, floor), max(self.cpu, floor))

    def as_json(self) -> dict[str, float]:
        """As in `run.json`."""
        return {"wall_s": round(self.wall, 3), "cpu_s": round(self.cpu, 3)}


def now() -> Spent:
    """A point in time; only differences mean something."""
    return Spent(time.perf_counter(), time.process_time())


@contextmanager
def timed(into: dict[str, Spent], phase: str) -> Iterator[None]:
    """Count what happens inside to `phase`."""
    began = now()
    try:
        yield
    finally:
        into[phase] = into.get(phase, Spent()) + now() - began


def summed(earlier: Mapping[str, Any], spent: Mapping[str, Spent]) -> dict[str, dict[str, float]]:
    """For `run.json`: these phases, and what earlier processes of the run noted there."""
    before = {phase: Spent(said["wall_s"], said["cpu_s"]) for phase, said in earlier.items()}
    every = dict.fromkeys([*before, *spent])
    return {p: (before.get(p, Spent()) + spent.get(p, Spent())).as_json() for p in every}
