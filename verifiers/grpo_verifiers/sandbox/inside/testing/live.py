"""Containers that objects of the solution hold: one here for each there, and what the test changes in it goes there."""

from __future__ import annotations

from typing import Any

from .. import wire
from ..wire import Value
from ..writing import write_back
from .ends import Connection


class Live:
    """The containers by their numbers there, each with what was last known of it on both sides."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.entries: dict[int, list[Any]] = {}

    def changed(self) -> list[list[Any]]:
        """What the test has changed since the last question."""
        encode = self.link.encode
        changed = [[n, now] for n, entry in self.entries.items() if (now := encode(entry[0])) != entry[1]]
        for number, now in changed:
            self.entries[number][1] = now
        return changed

    def found(self, number: Value, message: Value) -> Any:
        """The container of a number, with what is in it now."""
        value = self.link.decode(message)
        if type(number) is not int or type(value) not in (list, dict, set, bytearray):
            raise wire.BadWire("no container")
        entry = self.entries.setdefault(number, [value, None])
        if type(entry[0]) is not type(value):
            raise wire.BadWire("another container")
        if entry[0] is not value:
            write_back(entry[0], value)
        entry[1] = self.link.encode(entry[0])
        return entry[0]
