"""How often a person or a scheduler asked to stop.

A scheduler signals a process and its parent, which passes it on, and `scancel` sends SIGTERM to a step more than once: those
are one request. Ctrl-C is typed, and every one counts.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

ONE_REQUEST_S = 3.0
"""SIGTERMs closer together than this are one request, and so are SIGHUPs, which a shell and its terminal both send."""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a run to stop. The last says that the terminal has gone; `nohup` has it ignored, and that stays so."""
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""What schedulers send some time before they kill (Slurm's `--signal=USR1@120`, a limit of CPU time): a stop as by SIGTERM, where
the program that runs this has no use of its own for them."""


def stop_signals() -> list[signal.Signals]:
    """Those of `STOPS` and `WARNINGS` that ask this process to stop: none that it was told to ignore or to use otherwise."""
    stops = [n for n in STOPS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    return stops + [n for n in WARNINGS if signal.getsignal(n) == signal.SIG_DFL]


@dataclass
class StopRequests:
    """Counts the requests to stop."""

    count: int = 0
    at: float = float("-inf")

    def counts(self, number: int) -> bool:
        """Whether this signal is a request of its own; it is counted then."""
        before, self.at = self.at, time.monotonic()
        if number != signal.SIGINT and self.at - before < ONE_REQUEST_S:
            return False
        self.count += 1
        return True
