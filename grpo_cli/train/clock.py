"""Where the seconds and the memory of a step go."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch

from grpo_cli.display.protocol import Display
from grpo_cli.run.spent import SpentTime, now, timed


@dataclass
class Clock:
    """Seconds spent in each phase since the last step was closed; `pause` (evaluating, saving) is no part of a step.

    `spent` adds up the phases of all closed steps of this process.
    """

    began: SpentTime = field(default_factory=now)
    seconds: dict[str, SpentTime] = field(default_factory=dict)
    spent: dict[str, SpentTime] = field(default_factory=dict)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count what happens inside to `name`."""
        return timed(self.seconds, name)

    def start(self) -> None:
        """Forget what was before the first step."""
        self.began, self.seconds = now(), {}

    def split(self) -> tuple[dict[str, float], float]:
        """Seconds by phase and of the whole step; `update` is what is in no other phase."""
        # evaluating and saving lie between two closings, and are no part of either step
        whole = now() - self.began - self.seconds.get("pause", SpentTime())
        phases = {name: self.seconds.get(name, SpentTime()) for name in ("generate", "verify")}
        if "environment" in self.seconds:  # it acts while the engine waits
            phases["environment"] = self.seconds["environment"]
            phases["generate"] = (phases["generate"] - phases["environment"]).least(0.0)
        phases |= {name: self.seconds[name] for name in ("monitor", "critic") if name in self.seconds}
        phases["update"] = (whole - sum(phases.values(), SpentTime())).least(0.0)
        for name, spent in phases.items():
            self.spent[name] = self.spent.get(name, SpentTime()) + spent
        self.start()
        return {name: spent.wall for name, spent in phases.items()}, whole.wall


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
