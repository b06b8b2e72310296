"""How long the solution has waited of its own accord: the test program's timers are told, and go on by as much."""

from __future__ import annotations

import functools
import threading
import time
from typing import SupportsIndex


class VoluntaryWaits:
    """Seconds since they were last told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self) -> None:
        """Have the library's ways to wait count. Before the solution is defined, which may import them by name."""
        sleep, wait = time.sleep, threading.Condition.wait

        @functools.wraps(sleep)
        def counted_sleep(seconds: float | SupportsIndex, /) -> None:
            sleep(seconds)
            self.seconds += float(seconds)

        @functools.wraps(wait)
        def counted_wait(condition: threading.Condition, timeout: float | None = None) -> bool:
            start = time.monotonic()
            try:
                return wait(condition, timeout)
            finally:
                waited = time.monotonic() - start
                self.seconds += waited if timeout is None else min(waited, timeout)

        time.sleep = counted_sleep
        threading.Condition.wait = counted_wait  # type: ignore[assignment, method-assign]

    def take(self) -> float:
        """The seconds, to be told now."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


WAITED = VoluntaryWaits()
