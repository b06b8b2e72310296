"""What is left open goes to computer algebra in processes of its own: who asks whom, for how long, and when it is a flood.

`child` is the work, `processes.pool` starts and kills. Cases in a row that overstay shrink the deadline, so that a flood
of hostile answers cannot stop a training step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from grpo_verifiers.maths.reading.tree import Node
from grpo_verifiers.processes.pool import Done, Killed, Pool, ProcessLimits
from grpo_verifiers.verifier import Unavailable

SLOTS = 2
LIMITS = ProcessLimits(
    cpu_s=1.0, wall_s=1.0, patience=1.0, memory_mb=160, load_s=60.0, most_items=500, forks=False
)
"""A unit is a second by the clock, also on a busy machine: a training step waits for it. Memory is what a worker may add to what it starts with: its resident size stays below 256 MB."""
FEW = 3
"""Batches up to this size get the full deadline at once; so many overstaying cases in a row keep it full."""
QUICK_S = 0.25
"""Deadline of the first round of a larger batch, less after overstaying cases in a row; most proofs take 10 to 50 ms."""
LEAST_S = 0.2
SHORTEST_S = 0.05
GIVE_UP = 16
"""Overstaying cases in a row after which a round ends: this is a flood."""
BUDGET_S = 1.2
"""What a batch may spend on its second round; three times that if few of it are slow."""
FORGET_S = 5.0
"""After this long without an overstaying case the deadline is the full one again."""


class ProofTask(NamedTuple):
    """What is to be proved, and the texts for the last tier."""

    pairs: tuple[tuple[Node, Node], ...]
    gold: str
    answer: str
    log10: bool = False


class ChildFailed(RuntimeError):
    """The child could not be started: no verdict can be given on what was left open."""


class Prover:
    """Computer algebra shared by all verifiers of this process. Thread-safe; starts by itself; survives a fork of the caller."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.pool = Pool("grpo_verifiers.maths.proving.child:load", workers=slots, limits=LIMITS)
        self._overstayed = 0
        self._last_timeout = 0.0

    def launch(self) -> None:
        """Start a process without waiting for it."""
        self.pool.launch()

    def close(self) -> None:
        """End all processes; the next task starts anew."""
        self.pool.close()

    def prove(self, tasks: Sequence[ProofTask], seconds: float) -> list[str]:
        """For every task `s`, `m`, `n` (see `child`), or `timeout`, `memory`; `seconds` is the time of one task.

        A large batch gets a short deadline first, so that many slow cases cannot starve the quick ones; what
        overstayed it is tried again with the full deadline while `BUDGET_S` lasts.

        Raises:
            ChildFailed: there is no child to ask.
        """
        replies: dict[int, str] = {}
        # short answers are seldom slow
        waiting = sorted(range(len(tasks)), key=lambda i: len(tasks[i].answer))
        if len(tasks) > FEW:
            self._round(tasks, waiting, replies, min(seconds, QUICK_S), None)
            waiting = [i for i in waiting if replies[i] == "timeout"]
        if waiting:
            over = self._overstayed if time.monotonic() - self._last_timeout < FORGET_S else 0
            full = seconds if over <= FEW else max(min(seconds, LEAST_S), seconds / 2 ** (over - FEW))
            budget = BUDGET_S * (3 if 4 * len(waiting) < len(tasks) else 1)
            until = time.monotonic() + budget if len(tasks) > FEW else None
            self._round(tasks, waiting, replies, full, until)
        return [replies[i] for i in range(len(tasks))]

    def _round(
        self,
        tasks: Sequence[ProofTask],
        which: Sequence[int],
        replies: dict[int, str],
        seconds: float,
        until: float | None,
    ) -> None:
        """Ask for `which` tasks, one after another, with a deadline each."""
        in_a_row = 0
        for i in which:
            if in_a_row >= GIVE_UP or (until is not None and time.monotonic() >= until):
                replies.setdefault(i, "timeout")
                continue
            # the more of them overstay in a row, the less the next one gets
            limit = max(SHORTEST_S, seconds / (1, 2, 5)[min(in_a_row // FEW, 2)])
            if until is not None:
                limit = min(limit, max(SHORTEST_S, until - time.monotonic()))
            replies[i] = self._ask(tasks[i], limit)
            is_late = replies[i] == "timeout"
            in_a_row = in_a_row + 1 if is_late else 0
            if seconds > QUICK_S:
                self._overstayed = self._overstayed + 1 if is_late else 0
                self._last_timeout = time.monotonic() if is_late else self._last_timeout

    def _ask(self, task: ProofTask, seconds: float) -> str:
        """The child's reply; `timeout` or `memory` where there is none.

        Raises:
            ChildFailed: there is no child to ask, or it raised, which it never should.
        """
        # a worker may die of what the case before it left behind; the second one is fresh
        for _ in range(2):
            try:
                (result,) = self.pool.submit([tuple(task)], [seconds]).result()
            except Unavailable as err:
                raise ChildFailed(f"the process for computer algebra does not start: {err}") from err
            if isinstance(result, Done):
                return str(result.value)
            if not isinstance(result, Killed) or result.reason == "unavailable":
                raise ChildFailed(f"the process for computer algebra failed: {result}")
            if result.reason in ("timeout", "no_reply"):
                return "timeout"
            # it ran out of memory, or was killed from outside: once more in a fresh worker
        return "memory"


PROVER = Prover()
