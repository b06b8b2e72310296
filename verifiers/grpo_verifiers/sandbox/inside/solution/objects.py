"""The solution's side of a test program that runs elsewhere: answers calls, hands out handles for what is no plain value.

Nothing here is trusted. Arguments that a call has changed are sent back, so that in-place tasks can be tested.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

from .. import frames, wire
from ..wire import Fields
from .derived import made_class
from .describe import Describer
from .kept import CONTAINERS, Kept, encode_kept, is_held
from .operations import OPERATIONS
from .receiving import received
from .waiting import WAITED
from .world import Console, applied

NO_ENTRY = 97
MUTABLE_TAGS = frozenset({"d", "s", "B", "Q", "D", "na", "o", "io", "rs", "nm", "ay", "cm"})


class Peer(wire.Coder):
    """The connection and the objects that have been handed out."""

    def __init__(self, fd: int, module: types.ModuleType, shared: tuple[str, ...]) -> None:
        self.fd, self.module, self.shared = fd, module, shared
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.lent: dict[int, Any] = {}
        self.back: dict[int, Any] = {}
        self.beside: dict[int, type] = {}
        self.lock = threading.RLock()
        self.describer = Describer(self)
        self.console = Console(self)
        self.kept = Kept(self)
        self.known: dict[int, Any] = {}

    def number(self, value: object) -> int:
        """The number of an object, kept alive from now on."""
        found = self.numbers.get(id(value))
        if found is None:
            found = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return found

    def encode(self, value: object) -> Any:
        """A value as the test program gets it."""
        return wire.encode(value, self)

    def subclass(self, value: object, kind: type) -> Any:
        """Values of the solution's own subclasses of plain types that keep their class."""
        return self.describer.value(value, kind)

    def other(self, value: object) -> Any:
        """What is no plain value: by its number."""
        kind = type(value)
        back = self.back.get(id(value))
        if back is not None:
            return back
        name = kind.__name__
        if name in self.shared and self.module.__dict__.get(name) is kind:
            return {"o": [name, [[k, self.encode(v)] for k, v in vars(value).items()]]}
        return self.describer.other(value, kind)

    def decode(self, message: object) -> Any:
        """A value of the test program."""
        return wire.decode(message, lambda tag, body: received(self, tag, body))

    def say(self, message: object) -> None:
        """One message, behind what has been printed."""
        self.console.send()
        frames.send(self.fd, message)

    def ask(self, message: object) -> Any:
        """A question to the test program, answered after any further calls it makes meanwhile."""
        with self.lock:
            self.kept.tell()
            self.say(message)
            return self.loop()

    def loop(self) -> Any:
        """Serve until an answer to our own question comes."""
        while True:
            with self.lock:
                message = frames.receive(self.fd)
            if message[0] == "ret":
                return self.decode(message[1])
            if message[0] == "stop":
                raise StopIteration(*[self.decode(v) for v in message[1:]])
            if message[0] == "exc":
                raise self.decode(message[1])
            if message[0] == "live":
                self.kept.take(message[1])
                continue
            reply = self.answer(message)
            with self.lock:
                self.known = {}
                self.kept.tell()
                self.say(reply)

    def answer(self, message: list[Any]) -> list[Any]:
        """The reply to one request; whatever the solution raises is a reply too."""
        try:
            if message[0] == "call":
                return self._call(self.objects[message[1]], message[2], message[3], message[4])
            if message[0] == "method":
                owner = self.decode(message[1])
                function = getattr(owner if message[5] else self.decode(message[3][0]), message[2])
                skip = 0 if message[5] else 1
                return self._call(function, message[3], message[4], message[6], skip)
            if message[0] == "names":
                names = self.module.__dict__
                return ["ok", [[self._shown(names[n])] if n in names else None for n in message[1]]]
            if message[0] == "subclass":
                made = self._subclass(*message[1:])
                return ["ok", self.number(made)]
            if message[0] == "global":
                self.module.__dict__[message[1]] = self.decode(message[2])
                return ["ok", None]
            self.known = {}
            if message[0] == "get":
                value = getattr(self.decode(message[1]), message[2])
                # the test may change what it finds there, and count on its identity
                return ["ok", self._shown(value)]
            value = OPERATIONS[message[0]](*[self.decode(a) for a in message[1:]])
            return ["ok", self._shown(value) if self.kept.is_told(value) else self.encode(value)]
        except frames.Closed:
            raise
        except BaseException as err:  # noqa: BLE001 - every exception of the solution goes to the test
            return self._raised(err)

    def _subclass(self, name: str, parents: list[Any], members: list[Any], options: list[Any]) -> type:
        return made_class(self, name, parents, members, {k: self.decode(v) for k, v in options})

    def _call(
        self,
        function: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
        world: Fields | None,
        skip: int = 0,
    ) -> list[Any]:
        given = [self.decode(a) for a in args]
        named = {k: self.decode(v) for k, v in kwargs.items()}
        fields = [self.describer.fields(v) for v in given]
        try:
            with applied(self, world):
                result = function(*given[skip:], **named)
            changed = self._changed(args, given, kwargs, named, fields)
            touched = {place for place, _ in changed}
            self.known = _places(args, given, kwargs, named, touched)
            reply = ["ok", self._result(result, [*enumerate(given), *named.items()], changed)]
        except frames.Closed:
            raise
        except BaseException as err:  # noqa: BLE001 - as above
            self.known, result = {}, None
            reply = self._raised(err)
            changed = self._changed(args, given, kwargs, named, fields)
        held = self.kept.held(given, named, result)
        return [*reply, changed, held] if changed or held else reply

    def _shown(self, value: object) -> Any:
        return self.kept.shown(value) if type(value) in CONTAINERS else self.encode(value)

    def _result(self, value: object, given: list[tuple[Any, Any]], changed: list[list[Any]]) -> Any:
        """The message for a result; a container that the solution keeps as well is known by its number from now on."""
        if type(value) not in CONTAINERS:
            return self.encode(value)
        place = next((p for p, g in given if g is value), None)
        if place is None:
            return self.kept.shown(value) if is_held(value) else self.encode(value)
        # the changed argument is the result as well: the test finds it written there, once
        is_changed = any(p == place and type(now) in (list, dict) and now != {"x": 0} for p, now in changed)
        return {"tw": place} if is_changed else self.encode(value)

    def _changed(
        self,
        args: list[Any],
        given: list[Any],
        kwargs: dict[str, Any],
        named: dict[str, Any],
        fields: list[Any],
    ) -> list[list[Any]]:
        self.known = {}
        changed: list[list[Any]] = [
            [i, now]
            for i, (was, value) in enumerate(zip(args, given, strict=True))
            if (now := self._now(was, value)) != was
        ]
        changed += [[k, now] for k, was in kwargs.items() if (now := self._now(was, named[k])) != was]
        for i, (value, had) in enumerate(zip(given, fields, strict=True)):
            if had is not None and (now := self.describer.fields(value)) != had:
                changed.append([i, {"fv": now}])
        return changed

    def _now(self, was: object, value: object) -> Any:
        if type(was) is list or (type(was) is dict and not MUTABLE_TAGS.isdisjoint(was)):
            try:
                return encode_kept(value, self)
            except (RecursionError, wire.NotPlain, ValueError):
                # it cannot be sent as it is now: the test must not go on with what it was
                return {"x": 0}
        if type(was) is dict and ("t" in was or "n" in was):
            return self.encode(value)
        return was

    def _raised(self, err: BaseException) -> list[Any]:
        err.__traceback__ = None  # its frames would hold on to the arguments
        return ["raise", self.describer.exception(err)]


def _places(
    args: list[Any],
    given: list[Any],
    kwargs: dict[str, Any],
    named: dict[str, Any],
    touched: set[Any],
) -> dict[int, list[Any]]:
    """Where the containers of unchanged arguments are, so that a result that holds one of them says so."""
    places: dict[int, list[Any]] = {}
    arguments: list[tuple[Any, Any, Any]] = list(zip(range(len(args)), args, given, strict=True))
    arguments += [(k, kwargs[k], named[k]) for k in kwargs]
    for place, _, value in arguments:
        if place not in touched and type(value) in CONTAINERS:
            _find(value, [place], places, 0)
    return places


def _find(value: object, path: list[Any], places: dict[int, Any], depth: int) -> None:
    if type(value) not in CONTAINERS or id(value) in places or depth > 20 or len(places) > 5000:
        return
    places[id(value)] = {"a": path}
    if type(value) is list:
        for i, item in enumerate(value):
            if type(item) in CONTAINERS:
                _find(item, [*path, i], places, depth + 1)
    elif type(value) is dict:
        for key, item in value.items():
            if type(item) in CONTAINERS and type(key) in (str, int):
                _find(item, [*path, key], places, depth + 1)


def serve(
    fd: int,
    module: types.ModuleType,
    define: Callable[[], None],
    entry: str | None,
    find_entry: Callable[[types.ModuleType, str], Callable[[], Any] | None],
    shared: tuple[str, ...],
) -> int:
    """Define the solution, then answer until the test program hangs up."""
    WAITED.watch()
    define()
    peer = Peer(fd, module, shared)
    if entry:
        make = find_entry(module, entry)
        if make is None:
            return NO_ENTRY
        # the test calls it by that name, also where a method of `Solution` stands behind it
        if entry.isidentifier():
            module.__dict__[entry] = make()
    peer.console.take_over()
    try:
        peer.loop()
    except frames.Closed:
        return 0
    return 0
