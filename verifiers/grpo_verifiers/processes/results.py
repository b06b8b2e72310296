"""What an item may use in a pool, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.text import printable
from grpo_verifiers.verifier import Unavailable


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one item may use. `wall_s` None means three times the CPU limit plus two seconds.

    Wall time counts while a worker neither computes nor waits for a core or a disk.
    """

    cpu_s: float = 5.0
    wall_s: float | None = None
    memory_mb: int | None = 1024
    load_s: float = 120.0
    patience: float = 10.0
    """How many times the wall limit a worker may take in all, waits for a core among it."""
    most_items: int | None = None
    """Items after which a worker gives way to a fresh one."""
    forks: bool = True
    """Whether a worker may start processes and threads."""

    @property
    def backstop_s(self) -> float:
        """Seconds after which a worker that only waits is given up."""
        return self.wall_s if self.wall_s is not None else 3.0 * self.cpu_s + 2.0


@dataclass(frozen=True, slots=True)
class Done:
    """The work returned."""

    value: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Raised:
    """The work raised; `traceback` is for a log, `bases` the names of the exception's class and of all it derives from."""

    kind: str
    message: str
    traceback: str
    seconds: float
    bases: tuple[str, ...] = ()

    @property
    def at(self) -> str:
        """` (reward.py:7)`, the innermost line of the traceback; empty where it names none."""
        found = re.findall(r'File "([^"]+)", line (\d+)', self.traceback)
        return f" ({found[-1][0]}:{found[-1][1]})" if found else ""


def raised(kind: str, message: str, traceback: str, bases: Sequence[str], *, seconds: float = 0.0) -> Raised:
    """What a process says of an exception, made printable."""
    return Raised(
        printable(kind), printable(message), printable(traceback, lines=True), seconds, tuple(bases)
    )


@dataclass(frozen=True, slots=True)
class Killed:
    """The worker was killed for what it used (`timeout` of CPU, `memory`), or because it waited for something that did not come
    (`no_reply`); or it died on this item (`died`), or there was none (`unavailable`)."""

    reason: str
    seconds: float


Result = Done | Raised | Killed


class LoadFailed(Unavailable):
    """The task could not be loaded in a worker: `kind` and `message` of the exception, `traceback` for a log."""

    def __init__(self, kind: str, message: str, traceback: str) -> None:
        self.kind, self.message = printable(kind), printable(message, lines=True)
        self.traceback = printable(traceback, lines=True)
        super().__init__(f"{self.kind}: {self.message}")
