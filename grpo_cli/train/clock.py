"""Where the seconds and the memory of a step go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch

from grpo_cli.display.protocol import Display


@dataclass
class Clock:
    """Seconds spent in each phase since the last step was closed; `pause` (evaluating, saving) is no part of a step."""

    began: float = field(default_factory=time.perf_counter)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens inside to `name`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def lap(self) -> tuple[dict[str, float], float]:
        """Seconds by phase and of the whole step; `update` is what is in no other phase."""
        whole = time.perf_counter() - self.began - self.seconds.pop("pause", 0.0)
        phases = {name: self.seconds.get(name, 0.0) for name in ("generate", "verify")}
        if "monitor" in self.seconds:
            phases["monitor"] = self.seconds["monitor"]
        phases["update"] = max(0.0, whole - sum(phases.values()))
        self.began, self.seconds = time.perf_counter(), {}
        return phases, whole


@dataclass(frozen=True)
class StepProgress:
    """Tells the display where a step is, and the clock how long each part took."""

    clock: Clock
    display: Display

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """What the step is doing now, and how far that is."""
        self.display.phase(name, done, total)

    def timed(self, name: str) -> AbstractContextManager[None]:
        """Count what happens inside to `name`."""
        return self.clock.phase(name)


def gpu_memory() -> dict[str, float]:
    """Peak and whole memory of this process's GPU in GiB; nothing on a CPU."""
    if not torch.cuda.is_available():
        return {}
    whole = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return {"memory/peak_gib": torch.cuda.max_memory_allocated() / 2**30, "memory/total_gib": whole / 2**30}
