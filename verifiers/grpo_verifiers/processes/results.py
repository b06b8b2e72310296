"""What an item may use in a pool, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grpo_verifiers.verifier import Unavailable


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one item may use. `wall_s` None means three times the CPU limit plus two seconds."""

    cpu_s: float = 5.0
    wall_s: float | None = None
    memory_mb: int | None = 1024
    load_s: float = 120.0
    patience: float = 10.0
    """How many times the wall limit a worker may take that waits for a core."""
    most_items: int | None = None
    """Items after which a worker gives way to a fresh one."""
    forks: bool = True
    """Whether a worker may start processes and threads."""

    @property
    def backstop_s(self) -> float:
        """Wall seconds after which a worker that is not computing is given up."""
        return self.wall_s if self.wall_s is not None else 3.0 * self.cpu_s + 2.0


@dataclass(frozen=True, slots=True)
class Done:
    """The work returned."""

    value: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Raised:
    """The work raised; `traceback` is for a log."""

    kind: str
    message: str
    traceback: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Killed:
    """The worker was killed (`timeout`, `memory`), died on this item (`died`), or there was none (`unavailable`)."""

    reason: str
    seconds: float


Result = Done | Raised | Killed


class LoadFailed(Unavailable):
    """The task could not be loaded in a worker: `kind` and `message` of the exception, `traceback` for a log."""

    def __init__(self, kind: str, message: str, traceback: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.traceback = traceback
