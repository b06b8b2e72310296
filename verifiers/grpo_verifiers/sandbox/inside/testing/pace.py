"""The clock of a test program's timers and sleeping threads: it stands still while the solution is at work on an answer.

How long an answer takes depends on what else the machine does. A timer of the test that went off meanwhile would pay a
solution that should have waited for it. So time passes for them while the test or the solution waits of its own accord:
it says so, or computes nothing for a while though its listener answers.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from ..exchange import Exchange

P = ParamSpec("P")
T = TypeVar("T")
LOOK_S = 0.002
IDLE_S = 0.3  # of computing nothing: a machine so busy that a run gets no turn for as long has not been seen
IDLE_CPU_S = 0.0005
PING_S = 0.01
NOTICE_S = 5 * LOOK_S
SLEEP, NOW = time.sleep, time.monotonic


class Pace:
    """Which threads are at work: the main one, and any that asks the solution, but for what they wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = {threading.main_thread().ident}
        self._passed, self._idle_since = 0.0, 0.0
        self._sleepers = 0
        self._looking = threading.Lock()
        self._pinged, self._idle_from, self._cpu_s = 0.0, 0.0, -1.0
        self.exchange: Exchange | None = None
        """The one through which the solution is asked what it does."""
        self.has_waited = False
        """Whether the test has slept or waited since this was last set back."""

    def now(self) -> float:
        """Seconds during which nobody was at work."""
        with self._lock:
            return self._passed + (0.0 if self._working else NOW() - self._idle_since)

    def _begin(self) -> None:
        with self._lock:
            if not self._working:
                self._passed += NOW() - self._idle_since
            self._working.add(threading.get_ident())

    def _end(self) -> None:
        with self._lock:
            self._working.discard(threading.get_ident())
            if not self._working:
                self._idle_since = NOW()

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """This thread is at work."""
        if threading.get_ident() in self._working:
            yield
            return
        self._begin()
        try:
            yield
        finally:
            self._end()

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """This thread waits."""
        self.has_waited = True
        if threading.get_ident() not in self._working:
            yield
            return
        self._end()
        try:
            yield
        finally:
            self._begin()

    def sleep(self, seconds: float, woken: threading.Event | None = None) -> None:
        """Sleep as long as is due; a thread that is at work waits by the common clock."""
        self.has_waited = True
        if threading.get_ident() in self._working:
            with self.wait():
                SLEEP(seconds)
            return
        due = self.now() + seconds
        self._sleepers += 1
        try:
            # in small steps, since the clock may stand still at any time
            while self.now() < due:
                self._look()
                if woken is None:
                    SLEEP(LOOK_S)
                elif woken.wait(LOOK_S):
                    return
        finally:
            self._sleepers -= 1

    def _look(self) -> None:
        """Where the clock stands still for a solution that computes nothing, have time pass."""
        exchange = self.exchange
        if exchange is None or not self._working or not self._looking.acquire(False):
            return
        try:
            now = NOW()
            if not self._working <= exchange.waiting:
                self._cpu_s = -1.0  # the test itself is at work
            elif now - self._pinged >= PING_S and (exchange.pong is not None or self._cpu_s < 0):
                cpu_s = exchange.pong
                if cpu_s is None or self._cpu_s < 0 or cpu_s > self._cpu_s + IDLE_CPU_S:
                    self._cpu_s, self._idle_from = cpu_s or 0.0, now
                elif now - self._idle_from >= IDLE_S:
                    with self._lock:
                        self._passed += min(now - self._pinged, 2 * PING_S)
                self._pinged = now
                exchange.ping()
        except (OSError, EOFError):
            return  # it is gone, as whoever asked it is about to find
        finally:
            self._looking.release()

    def pass_by(self, seconds: float) -> None:
        """The solution has slept."""
        if self._sleepers and seconds > 0:
            with self._lock:
                self._passed += seconds
            SLEEP(NOTICE_S)


PACE = Pace()


def install() -> None:
    """Have the library's ways to wait keep this clock."""
    for owner, name in ((threading.Condition, "wait"), (threading.Thread, "join")):
        setattr(owner, name, _waiting(getattr(owner, name)))
    time.sleep = functools.wraps(SLEEP)(lambda seconds, /: PACE.sleep(seconds))
    threading.Timer.run = _run_timer  # type: ignore[assignment]


def _waiting(function: Callable[P, T]) -> Callable[P, T]:
    @functools.wraps(function)
    def wait(*args: P.args, **kwargs: P.kwargs) -> T:
        with PACE.wait():
            return function(*args, **kwargs)

    return wait


def _run_timer(self: threading.Timer) -> None:
    PACE.sleep(self.interval, self.finished)
    if not self.finished.is_set():
        self.function(*self.args, **self.kwargs)
    self.finished.set()
