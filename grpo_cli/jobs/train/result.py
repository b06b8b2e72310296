"""What a run came to, and where its time went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_cli.errors import Exit
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Status


@dataclass
class TrainResult:
    """What a run came to; `before` and `after` are evaluation metrics, `code` is the exit code."""

    run: RunFolder
    steps: int
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    code: Exit = Exit.OK
    checkpoint: Path | None = None
    status: Status = "done"


@dataclass
class Stopwatch:
    """Seconds of this process by phase, since it began."""

    began: float = field(default_factory=time.perf_counter)
    seconds: dict[str, float] = field(default_factory=lambda: {"setup": 0.0, "warmup": 0.0})

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count what happens inside to `phase`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began

    def of(self, run: RunFolder) -> dict[str, float]:
        """These, the phases of the run's steps (earlier processes among them), and `total` of this process."""
        lines = run.metrics()
        phases = {p: sum(m.get(f"time/{p}") or 0.0 for m in lines) for p in ("generate", "verify", "update")}
        return {**self.seconds, **phases, "total": time.perf_counter() - self.began}
