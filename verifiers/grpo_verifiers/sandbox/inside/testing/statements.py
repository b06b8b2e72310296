"""What belongs to the statement that a thread of the test is in: the arguments of its calls, what these have changed, and
results that are such arguments."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..writing import write_back
from .ends import Connection
from .live import Entry
from .mirrored.handles import Handle
from .pace import PACE

TESTS = "<tests>"  # the file name of compiled test programs


class _Own(threading.local):
    def __init__(self) -> None:
        self.pending: deque[tuple[Any, Any]] = deque()
        self.arguments: list[tuple[Sequence[Any], dict[str, Any]]] = []


class Statements:
    """By thread: one must not see written, in the middle of its statement, what another one has finished."""

    def __init__(self, link: Connection) -> None:
        self.link, self._own = link, _Own()
        self._main, self._first = threading.get_ident(), self._own.pending

    @property
    def arguments(self) -> list[tuple[Sequence[Any], dict[str, Any]]]:
        """Those of the calls of this thread that run, the innermost last."""
        return self._own.arguments

    def delay(self, target: object, value: object) -> None:
        """Have something written at the end of the statement: the main thread's, where this one is in none."""
        is_in_one = threading.get_ident() == self._main or _is_in_statement()
        (self._own.pending if is_in_one else self._first).append((target, value))

    def commit(self) -> None:
        """Write back what calls of the finished statement changed in their arguments."""
        # a thread of the solution may have changed what it holds while the test slept, and nobody has asked since
        if PACE.has_waited and self.link.exchange.is_peer_threaded and self.link.live.entries:
            PACE.has_waited = False
            self.link.ask("sync")
        pending = self._own.pending
        while pending:
            target, value = pending.popleft()
            if isinstance(target, Entry):
                self.link.live.settle(target, value)
            elif not isinstance(target, Handle):
                write_back(target, value)
            elif target._fields is not None:
                target._fields[:] = value


def _is_in_statement() -> bool:
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == TESTS:
            return True
        frame = frame.f_back
    return False


class ReturnedArguments:
    """What such calls returned, each with the argument it stands for."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.originals: dict[int, tuple[Any, Any]] = {}

    def value(self, reply: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What a call returned; of a changed argument, what that one will be at the commit, so that it cannot be another."""
        message = reply[1]
        if type(message) is not dict or "tw" not in message:
            return self.link.decode(message)
        place = message["tw"]
        value = self.link.decode(next(now for changed, now in reply[2] if changed == place))
        self.originals[id(value)] = value, kwargs[place] if type(place) is str else args[place]
        return value

    def is_same(self, one: object, other: object) -> bool:
        """`is`, as it would be in one process."""
        first, second = (self.originals.get(id(v), (v, v))[1] for v in (one, other))
        return first is second
