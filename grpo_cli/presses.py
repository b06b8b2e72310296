"""How often a person or a scheduler asked to stop.

A scheduler signals a process and its parent, which passes it on, and `scancel` sends SIGTERM to a step more than once: those
are one request. Ctrl-C is typed, and every one counts.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

ONE_REQUEST_S = 3.0
"""SIGTERMs closer together than this are one request."""


@dataclass
class Presses:
    """Counts the requests to stop."""

    count: int = 0
    at: float = float("-inf")

    def counts(self, number: int) -> bool:
        """Whether this signal is a request of its own; it is counted then."""
        before, self.at = self.at, time.monotonic()
        if number == signal.SIGTERM and self.at - before < ONE_REQUEST_S:
            return False
        self.count += 1
        return True
