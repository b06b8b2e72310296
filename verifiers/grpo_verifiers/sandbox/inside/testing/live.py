"""Containers that objects of the solution hold: one here for each there, and what the test changes in it goes there."""

from __future__ import annotations

import io
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from .. import wire
from ..wire import Parts
from ..writing import items_of, write_back
from .ends import Connection

AT_ONCE = (io.StringIO, io.BytesIO, random.Random)  # no test makes its expected value of one in the same statement
KEPT = (list, dict, set, bytearray, deque, *AT_ONCE)


@dataclass(slots=True)
class Entry:
    """A container, its content as the other side knows it, whose it is, and whether a change waits for the commit."""

    value: Any
    told: Any
    is_own: bool
    is_due: bool = False


def _plain(value: object) -> object:
    """What is in an object of a class of the solution that is a kind of container."""
    if isinstance(value, list):
        return list(value)
    return dict(items_of(value)) if isinstance(value, dict) else set(value) if isinstance(value, set) else value


class Live:
    """The containers by their numbers there, each with what was last known of it on both sides."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.entries: dict[int, Entry] = {}
        self.known: dict[int, Any] = {}

    def content(self, value: object) -> Any:
        """What is in a container, as a message."""
        # else it would be told as a reference to itself
        known = self.known.pop(id(value), None)
        try:
            return self.link.encode(_plain(value) if type(value).__module__ == "solution" else value)
        finally:
            if known is not None:
                self.known[id(value)] = known

    def changed(self) -> list[list[Any]]:
        """What the test has changed since the last question."""
        changed = [
            [n, now] for n, e in self.entries.items() if not e.is_due and (now := self.content(e.value)) != e.told
        ]
        for number, now in changed:
            self.entries[number].told = now
        return changed

    def _enter(self, number: object, value: object, is_own: bool) -> Entry:
        if type(number) is not int:
            raise wire.BadWire("no container")
        entry = self.entries[number] = Entry(value, None, is_own)
        self.known[id(value)] = {"L": number}
        entry.told = self.content(value)
        return entry

    def found(self, number: int, message: Parts) -> Any:
        """The container of a number, with what is in it now."""
        value = self.link.decode(message)
        if type(value) not in (list, dict, set, bytearray):
            raise wire.BadWire("no container")
        entry = self.entries.get(number) or self._enter(number, value, True)
        # a number means one container for good
        if type(entry.value) is not type(value):
            raise wire.BadWire("another container")
        if entry.value is value or entry.is_due:
            return entry.value
        if entry.is_own:
            self._write(entry, value)
        else:  # the test may still make its expected value of it in this statement
            self._delay(entry, value)
        return entry.value

    def _delay(self, entry: Entry, value: object) -> None:
        entry.is_due = True
        self.link.statements.delay(entry, value)

    def own(self, number: int, value: object, content: object) -> None:
        """An object of the solution that is a kind of container, and what is in it now."""
        entry = self.entries.get(number) or self._enter(number, value, True)
        if not entry.is_own:
            raise wire.BadWire("a container of the test")
        self._write(entry, content)

    def _write(self, entry: Entry, content: object) -> None:
        write_back(entry.value, content)
        entry.told = self.content(entry.value)

    def adopt(self, number: object, value: object) -> None:
        """A container of the test that the solution has kept."""
        if number not in self.entries and type(value) in KEPT and id(value) not in self.known:
            self._enter(number, value, False)

    def take(self, changed: Parts) -> None:
        """What the solution has changed: written at once in its own containers; of the test's it is for the commit."""
        for number, message in changed:
            entry, value = self.entries.get(number), self.link.decode(message)
            if entry is None:
                continue
            if entry.is_own or type(entry.value) in AT_ONCE:
                self._write(entry, value)
            else:
                self._delay(entry, value)

    def settle(self, entry: Entry, value: object) -> None:
        """Write what was waiting for the commit."""
        self._write(entry, value)
        entry.is_due = False
