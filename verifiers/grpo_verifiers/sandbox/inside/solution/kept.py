"""Containers of the test program that the solution has kept, and those of its own that the test has been shown.

A list that an object, a generator or a closure of the solution holds on to changes long after the call that brought it.
"""

from __future__ import annotations

import io
import random
import sys
from collections import deque
from typing import Any

from .. import wire
from ..wire import Parts
from ..writing import write_back
from .describe import plain_base, plain_content
from .ends import PeerEnd

CONTAINERS = (list, dict, set, bytearray)
KEPT = (*CONTAINERS, deque, io.StringIO, io.BytesIO, random.Random)
OWN_REFERENCES = 3  # the list of arguments, the loop's name, the argument of getrefcount
RESULT_REFERENCES = 4  # the caller's name, and the names and the argument on the way here
MOST = 200


def encode_kept(value: Any, peer: Any) -> Any:
    """The content of a container, or of a stream or source of chance as it stands."""
    kind = type(value)
    if kind is io.StringIO:
        return {"io": ["text", value.getvalue(), value.tell()]}
    if kind is io.BytesIO:
        return {"io": ["bytes", value.getvalue().hex(), value.tell()]}
    if kind is random.Random:
        state = value.getstate()
        return {"rs": [state[0], list(state[1]), state[2]]}
    base = plain_base(kind) if kind not in KEPT else None
    return wire.encode(value if base is None else plain_content(value, base), peer)


def is_held(value: object) -> bool:
    """Whether anybody but the two functions that hand a result on refers to it."""
    return sys.getrefcount(value) > RESULT_REFERENCES


class Kept:
    """The containers by their numbers, each with what the test program was last told of it."""

    def __init__(self, peer: PeerEnd) -> None:
        self.peer = peer
        self.told: dict[int, Any] = {}

    def shown(self, value: object) -> Any:
        """The message for a container that an object of the solution holds."""
        if len(self.told) >= MOST and id(value) not in self.peer.numbers:
            return self.peer.encode(value)
        number = self.peer.number(value)
        made = self.content(number)
        self.told[number] = made
        return {"L": [number, made]}

    def own(self, value: object) -> Any:
        """What is in an object of a solution's class that is a kind of plain value; of a container the changes are told."""
        number = self.peer.number(value)
        made = self.content(number)
        if isinstance(value, list | dict | set):
            self.told[number] = made
        return made

    def content(self, number: int) -> Any:
        """What is in it now."""
        with self.peer.describer.told.part():
            return encode_kept(self.peer.objects[number], self.peer)

    def held(self, given: list[Any], named: dict[str, Any], result: object) -> list[list[Any]]:
        """Place and number of each argument that somebody still holds behind the call."""
        found: list[list[Any]] = []
        for place, value in [*enumerate(given), *named.items()]:
            # an argument that is not a result itself is referred to once more by the list just made
            others = sys.getrefcount(value) - OWN_REFERENCES - 1 - (value is result)
            if type(value) in KEPT and others > 0:
                number = self.peer.number(value)
                if number not in self.told and len(self.told) < MOST:
                    self.told[number] = self.content(number)
                    found.append([place, number])
        return found

    def take(self, changed: Parts) -> None:
        """What the test program has changed in them."""
        for number, value in changed:
            write_back(self.peer.objects[number], self.peer.decode(value))
            self.told[number] = self.content(number)

    def tell(self) -> None:
        """Say what the solution has changed in them since they were last spoken of."""
        changed = []
        for number, before in self.told.items():
            try:
                now = self.content(number)
            except (RecursionError, RuntimeError, TypeError, ValueError):
                continue  # it holds itself, or a thread is changing it
            if now != before:
                changed.append([number, now])
        if changed:
            self.told |= dict(changed)
            self.peer.say(["live", changed])
