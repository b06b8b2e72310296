"""Containers that both sides hold: what a call changed in its arguments, and what an object of the solution keeps.

A message has a memo: its containers, numbered in the order in which they are met. The reply to a request goes on with the
memo of the request, so that a result that is an argument, or a part of one, comes home as that very object (`M`). A
container that the solution still holds behind a call is shared from then on (`L`, with a number): each side sends the
content again when it is not what the other one was told last.
"""

from __future__ import annotations

import contextlib
import marshal
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from . import values
from .values import Value

SHARED_KINDS = (list, dict, set, bytearray, deque)
MOST_SHARED = 200


class SharedContainer:
    """A shared container, what the other side was told of it, and whether a change of it waits for the statement's end.

    `mark` is its plain content when it was last found to be as told, "" where that is not all.
    """

    __slots__ = ("is_due", "is_own", "mark", "told", "value")

    def __init__(self, value: Value, told: Any, is_own: bool = False) -> None:
        self.value, self.told, self.is_own, self.is_due = value, told, is_own, False
        self.mark = b""


class SharingCoder(values.Coder):
    """What both sides do with containers."""

    keeps_identity = True

    def __init__(self, classes: Collection[str], namespace: dict[str, Any]) -> None:
        self.classes, self.namespace = classes, namespace
        """The names of the classes that the prompt defines, and where they are found on this side."""
        self.memo, self.met, self.others = dict[int, int](), list[Any](), set[type]()
        self.shared, self.numbers = dict[int, SharedContainer](), dict[int, int]()
        self.written = dict[int, Any]()
        """Places of arguments that a call has changed, while its result is encoded."""

    @contextlib.contextmanager
    def message(self) -> Iterator[None]:
        """A memo of its own for what is encoded and decoded inside."""
        kept = self.memo, self.met
        self.memo, self.met = {}, []
        try:
            yield
        finally:
            self.memo, self.met = kept

    def begin(self, container: Any) -> Any:
        """Number a container of the message."""
        self.memo[id(container)] = len(self.met)
        self.met.append(container)
        return container

    def seen(self, value: object) -> Any:
        """The reference to a container that is shared, or stands in the message already."""
        number, place = self.numbers.get(id(value)), self.memo.get(id(value))
        if id(value) in self.written:
            return {"W": self.written[id(value)]}
        if number is not None or place is not None:
            self.is_simple = False
            return {"M": place} if number is None else {"L": [number]}
        self.begin(value)
        return None

    def of_prompt(self, value: Value) -> Any:
        """The message for a class that the prompt defines, or for an object of one; None for anything else."""
        kind: type = value if isinstance(value, type) else type(value)
        name = kind.__name__
        if name not in self.classes or self.namespace.get(name) is not kind:
            return None
        if kind is value:
            return {"S": name}
        return self.seen(value) or {"F": [name, [[k, values.encode(v, self)] for k, v in vars(value).items()]]}

    def share(self, number: int, value: Value, is_own: bool = False) -> SharedContainer:
        """Share a container under a number."""
        entry = self.shared[number] = SharedContainer(value, None, is_own)
        self.numbers[id(value)] = number
        entry.told = self.content(value)
        return entry

    def content(self, value: Value) -> Any:
        """What is in a container, as a message of its own."""
        number = self.numbers.pop(id(value), None)  # else it would be a reference to itself
        try:
            with self.message():
                return values.encode(value, self)
        finally:
            if number is not None:
                self.numbers[id(value)] = number

    def changed(self) -> list[values.Parts]:
        """Number and content of the shared containers that are not as the other side was told."""
        found = list[values.Parts]()
        for number, entry in self.shared.items():
            if entry.is_due:
                continue
            try:
                mark = marshal.dumps(entry.value, 2)  # many times faster than a message
            except ValueError:
                mark = b""  # there are objects in it
            if mark and mark == entry.mark:
                continue
            self.is_simple = True
            now = self.content(entry.value)
            entry.mark = mark if self.is_simple else b""
            if now != entry.told:
                entry.told = now
                found.append([number, now])
        return found

    def read(self, message: Value) -> Any:
        """The value of a message of its own."""
        with self.message():
            return values.decode(message, self)

    def write(self, entry: SharedContainer, value: Value) -> None:
        """Set a shared container to the content that the other side sent."""
        write_back(entry.value, value, self.numbers)
        entry.told, entry.is_due, entry.mark = self.content(entry.value), False, b""


def write_back(target: Value, value: Value, shared: Mapping[int, int]) -> None:
    """Make a container equal to another one of its kind, keeping the identity of what is inside and of what is shared."""
    if target is value:
        return

    def merged(old: Any, new: Any) -> Any:
        if type(old) is type(new) and type(old) in (list, dict, set, tuple) and id(new) not in shared:
            write_back(old, new, shared)
            # the old object, now with what is in the new one: others may hold it
            return old if type(old) is not tuple else new
        return new

    # by the plain type's own methods: a class may have others under these names
    if isinstance(target, list) and type(value) is list:
        items = [merged(old, new) for old, new in zip(list.__iter__(target), value, strict=False)]
        list.__setitem__(target, slice(None), items + value[len(items) :])
    elif isinstance(target, dict) and isinstance(value, dict):
        kind: Any = OrderedDict if isinstance(target, OrderedDict) else dict
        had = dict(dict.items(target))
        pairs = [(k, merged(had[k], v) if k in had else v) for k, v in value.items()]
        kind.clear(target)
        for key, item in pairs:
            kind.__setitem__(target, key, item)
    elif isinstance(target, set) and isinstance(value, set):
        set.clear(target)
        set.update(target, value)
    elif type(target) is bytearray and type(value) is bytearray:
        target[:] = value
    elif type(target) is deque and type(value) is deque:
        target.clear()
        target.extend(value)
    elif type(target) is tuple and type(value) is tuple:
        for old, new in zip(target, value, strict=False):
            merged(old, new)
    elif type(target).__module__ == "numpy" and type(value) is type(target):
        if target.shape == value.shape:
            target[...] = value
    elif type(target) is type(value) and hasattr(target, "__dict__"):
        # an object of a class of the prompt: these alone cross by their attributes
        target.__dict__.update({k: merged(target.__dict__.get(k), v) for k, v in value.__dict__.items()})
