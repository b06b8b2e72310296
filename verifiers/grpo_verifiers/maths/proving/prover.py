"""What is left open goes to computer algebra in processes of its own.

`symbolic` is the work, `processes.pool` starts and kills. Every proof has the same CPU time, whatever else is asked for
with it and however busy the machine is: a verdict does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grpo_verifiers.maths.reading.tree import Node
from grpo_verifiers.processes.pool import Done, Killed, Pool, ProcessLimits, Result
from grpo_verifiers.verifier import Unavailable

SLOTS = 2
LIMITS = ProcessLimits(cpu_s=1.0, wall_s=20.0, patience=5.0, memory_mb=160, load_s=60.0, most_items=500, forks=False)
"""A unit is a second of CPU time; the clock only ends a worker that waits for ever. Memory is what a worker may add to what it starts with: its resident size stays below 256 MB."""


class ProofTask(NamedTuple):
    """What is to be proved."""

    pairs: tuple[tuple[Node, Node], ...]
    log10: bool = False


class ChildFailed(RuntimeError):
    """The child could not be started: no verdict can be given on what was left open."""


class Prover:
    """Computer algebra shared by all verifiers of this process. Thread-safe; starts by itself; survives a fork of the caller."""

    def __init__(self, slots: int = SLOTS) -> None:
        self.pool = Pool("grpo_verifiers.maths.proving.symbolic:load", workers=slots, limits=LIMITS)

    def launch(self) -> None:
        """Start a process without waiting for it."""
        self.pool.launch()

    def close(self) -> None:
        """End all processes; the next task starts anew."""
        self.pool.close()

    def prove(self, tasks: Sequence[ProofTask], seconds: float) -> list[str]:
        """For every task `s`, `n`, `u` (see `symbolic.settle`), or `timeout`, `memory`; each may take so many seconds of CPU time.

        Raises:
            ChildFailed: there is no child to ask, or it raised, which it never should.
        """
        try:
            results = self.pool.submit([tuple(task) for task in tasks], [seconds] * len(tasks)).result()
            # a worker may die of what the case before it left behind, or be killed from outside: once more in a fresh one
            dead = [
                at
                for at, result in enumerate(results)
                if (isinstance(result, Killed) and result.reason not in ("timeout", "no_reply", "unavailable"))
            ]
            if dead:
                again = self.pool.submit([tuple(tasks[at]) for at in dead], [seconds] * len(dead)).result()
                results = [*results]
                for at, result in zip(dead, again, strict=True):
                    results[at] = result
        except Unavailable as err:
            raise ChildFailed(f"the process for computer algebra does not start: {err}") from err
        return [_reply(result) for result in results]


def _reply(result: Result) -> str:
    if isinstance(result, Done):
        return str(result.value)
    if not isinstance(result, Killed) or result.reason == "unavailable":
        raise ChildFailed(f"the process for computer algebra failed: {result}")
    return "timeout" if result.reason in ("timeout", "no_reply") else "memory"


PROVER = Prover()
