"""How long the solution waits of its own accord: the test program's timers are told, and go on by as much."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from typing import SupportsIndex

from ..exchange import Exchange

NOW = time.monotonic  # a test may patch the name


class VoluntaryWaits:
    """The waits of threads that a test waits for, which are not those of the solution's own."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.exchange: Exchange | None = None

    def watch(self) -> None:
        """Have the library's ways to wait count. Before the solution is defined, which may import them by name."""
        sleep, wait, join = time.sleep, threading.Condition.wait, threading.Thread.join

        @functools.wraps(sleep)
        def counted_sleep(seconds: float | SupportsIndex, /) -> None:
            with self._counted(float(seconds)):
                sleep(seconds)

        @functools.wraps(wait)
        def counted_wait(condition: threading.Condition, timeout: float | None = None) -> bool:
            with self._counted(timeout):
                return wait(condition, timeout)

        @functools.wraps(join)
        def counted_join(thread: threading.Thread, timeout: float | None = None) -> None:
            with self._counted(timeout):
                join(thread, timeout)

        time.sleep = counted_sleep
        threading.Condition.wait = counted_wait  # type: ignore[assignment, method-assign]
        threading.Thread.join = counted_join  # type: ignore[assignment, method-assign]

    @contextlib.contextmanager
    def _counted(self, most: float | None) -> Iterator[None]:
        """A wait of at most so many seconds: where threads wait for each other the test is told at its beginning."""
        exchange = self.exchange
        if exchange is not None and not exchange.is_conversing():
            yield
            return
        told = exchange if exchange is not None and exchange.is_listening else None
        if told is not None:
            told.send(["waits", most])
        start = NOW()
        try:
            yield
        finally:
            if told is not None:
                told.send(["works"])
            else:
                waited = NOW() - start
                self.seconds += waited if most is None else min(waited, most)

    def take(self) -> float:
        """The seconds, to be told now."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


WAITED = VoluntaryWaits()
