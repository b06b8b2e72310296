"""The stopwatch of the race between `grpo train` and plain TRL: CPU and wall seconds without evaluations.

Start-up ends where the first step begins; what happens before it, imports included, is reported apart. The clock of a
run stops at the second of two evaluations running at or above the target; evaluations themselves never count.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback

TARGET, EVERY = 0.85, 5


class Stopwatch(TrainerCallback):  # type: ignore[misc]
    """`started_at` is the wall clock (`time.time()`) of the moment the process was asked for."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.paused_cpu = self.paused_wall = 0.0
        self.startup: tuple[float, float] | None = None
        self.scores: list[float] = []
        self.marks: list[tuple[float, float]] = []  # (CPU, wall) since the first step began, one each evaluation

    def now(self) -> tuple[float, float]:
        """CPU and wall seconds of this process without its pauses."""
        return time.process_time() - self.paused_cpu, time.time() - self.started_at - self.paused_wall

    @contextmanager
    def pause(self) -> Iterator[None]:
        """What happens inside is not counted."""
        cpu, wall = time.process_time(), time.time()
        yield
        self.paused_cpu += time.process_time() - cpu
        self.paused_wall += time.time() - wall

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The first one ends the start-up."""
        self.startup = self.startup or self.now()

    def evaluated(self, score: float) -> bool:
        """Whether the target has been reached: twice running."""
        began = self.startup or self.now()
        cpu, wall = self.now()
        self.scores.append(score)
        self.marks.append((cpu - began[0], wall - began[1]))
        return self.is_reached

    @property
    def is_reached(self) -> bool:
        """Two evaluations running at or above the target."""
        return len(self.scores) > 1 and min(self.scores[-2:]) >= TARGET

    def report(self) -> None:
        """One JSON object on stdout."""
        assert self.startup is not None
        json.dump(
            {
                "startup_cpu_s": self.startup[0],
                "startup_wall_s": self.startup[1],
                "scores": self.scores,
                "reached": self.is_reached,
                "steps": EVERY * (len(self.scores) - 1),
                "cpu_s": self.marks[-1][0],
                "wall_s": self.marks[-1][1],
            },
            sys.stdout,
        )
        print()
