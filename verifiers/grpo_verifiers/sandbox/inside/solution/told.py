"""Which classes the test program has been told of: only what has been sent counts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class ToldClasses:
    """By number. Parts of a message are made before it is known whether they will be sent."""

    def __init__(self) -> None:
        self._sent, self._unsent = set[int](), set[int]()
        self._depth, self._fresh = 0, list[int]()

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """A part of a message: it is sent as a whole or not at all, and so is what it tells of classes."""
        if self._depth == 0:
            self._fresh.clear()
        self._depth, before = self._depth + 1, len(self._fresh)
        try:
            yield
        except BaseException:
            del self._fresh[before:]
            raise
        finally:
            self._depth -= 1

    def add(self, number: int) -> bool:
        """Whether a class has to be described in this part, which then does."""
        if number in self._sent or number in self._fresh:
            return False
        self._fresh.append(number)
        self._unsent.add(number)
        return True

    def send(self, message: object) -> None:
        """A message is about to be sent: the classes that it describes are known from now on."""
        if self._unsent:
            described = _described(message, self._unsent)
            self._sent |= described
            self._unsent -= described


def _described(message: object, wanted: set[int]) -> set[int]:
    """Which of these classes a message describes."""
    found, waiting = set[int](), [message]
    while waiting:
        part = waiting.pop()
        if type(part) is dict:
            number = part.get("n")
            if type(number) is int and number in wanted and "t" in part and "p" in part:
                found.add(number)
            waiting += part.values()
        elif type(part) is list:
            waiting += part
    return found
