"""The solution's side of a test program that runs elsewhere: answers calls, hands out handles for what is no plain value.

Nothing here is trusted. Arguments that a call has changed are sent back, so that in-place tasks can be tested.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable
from typing import Any

from .. import frames, wire
from ..exchange import END, Exchange, released
from ..scratch import WorkingFolder
from ..wire import Fields
from .arguments import CallArguments
from .derived import made_class
from .describe import Describer
from .kept import CONTAINERS, Kept, is_held
from .operations import OPERATIONS
from .receiving import received
from .waiting import WAITED
from .world import Console, applied

NO_ENTRY = 97


class Peer(wire.Coder):
    """The connection and the objects that have been handed out."""

    def __init__(self, fd: int, module: types.ModuleType, shared: tuple[str, ...]) -> None:
        self.module, self.shared = module, shared
        self.exchange = Exchange(fd, 1, self.loop)
        self.state = self.exchange.state
        WAITED.exchange = self.exchange
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.lent: dict[int, Any] = {}
        self.back: dict[int, Any] = {}
        self.beside: dict[int, type] = {}
        self.describer = Describer(self)
        self.console = Console(self)
        self.kept, self.folder = Kept(self), WorkingFolder()
        self.known: dict[int, Any] = {}

    def number(self, value: object) -> int:
        """The number of an object, kept alive from now on."""
        with self.state:
            found = self.numbers.get(id(value))
            if found is None:
                found = self.numbers[id(value)] = len(self.objects)
                self.objects.append(value)
            return found

    def encode(self, value: object) -> Any:
        """A value as the test program gets it."""
        with self.state, self.describer.told.part():
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
        with self.state:
            return wire.decode(message, lambda tag, body: received(self, tag, body))

    def say(self, message: object) -> None:
        """One message, behind what has been printed."""
        with self.state:
            self.console.send()
            self.describer.told.send(message)
            # a test that knows nothing of folders has told of none
            if self.folder.told and (now := self.folder.moved()):
                self.exchange.send(["cwd", now])
            self.exchange.send(message)

    def ask(self, message: object) -> Any:
        """A question to the test program, answered after any further calls it makes meanwhile."""
        with self.state:
            # where it is the encoding of a reply that asks: what that one knows is not for what is said meanwhile
            known, self.known = self.known, {}
            try:
                self.kept.tell()
                self.say(message)
                return self._serve()
            finally:
                self.known = known

    def loop(self) -> None:
        """Serve one thread of the test program until it ends."""
        with self.state:
            self._serve()

    def _serve(self) -> Any:
        """Serve until an answer to our own question comes."""
        world: Fields | None = None
        while True:
            message = self.exchange.receive()
            if message[0] in ("begin", END):
                if message[0] == END:
                    return None
                continue
            if message[0] == "ret":
                return self.decode(message[1])
            if message[0] == "stop":
                raise StopIteration(*[self.decode(v) for v in message[1:]])
            if message[0] == "exc":
                raise self.decode(message[1])
            if message[0] == "live":
                self.kept.take(message[1])
                continue
            if message[0] == "cwd":
                self.folder.follow(message[1])
                continue
            if message[0] == "printed":
                with contextlib.suppress(Exception):
                    getattr(sys, message[1]).write(message[2])
                continue
            if message[0] == "world":
                world = message[1]
                continue
            reply, world = self.answer(message, world), None
            self.known = {}
            self.kept.tell()
            self.say(reply)

    def answer(self, message: list[Any], world: Fields | None = None) -> list[Any]:
        """The reply to one request, made in the world of the test; whatever the solution raises is a reply too."""
        try:
            if message[0] == "call":
                return self._call(self.objects[message[1]], message[2], message[3], message[4])
            if message[0] == "method":
                owner = self.decode(message[1])
                owner = owner if message[5] else self.decode(message[3][0])
                with released(self.state):
                    function = getattr(owner, message[2])
                skip = 0 if message[5] else 1
                return self._call(function, message[3], message[4], message[6], skip)
            if message[0] == "names":
                names = self.module.__dict__
                return ["ok", [[self._shown(names[n])] if n in names else None for n in message[1]]]
            if message[0] == "subclass":
                with released(self.state):
                    made = self._subclass(*message[1:])
                return ["ok", self.number(made)]
            if message[0] == "global":
                self.module.__dict__[message[1]] = self.decode(message[2])
                return ["ok", None]
            self.known = {}
            if message[0] == "get":
                owner = self.decode(message[1])
                with applied(self, world), released(self.state):
                    value = getattr(owner, message[2])
                # the test may change what it finds there, and count on its identity
                return ["ok", self._shown(value)]
            given, before = [self.decode(a) for a in message[1:]], self.console.replaced()
            with applied(self, world), released(self.state):
                value = OPERATIONS[message[0]](*given)
            if message[0] == "enter" and (new := self.console.replaced() - before):
                self.exchange.send(["redirect", sorted(new)])
            return ["ok", self._result(value, [], [])]
        except frames.Closed:
            raise
        except BaseException as err:  # noqa: BLE001 - every exception of the solution goes to the test
            return self._raised(err)

    def _subclass(self, name: str, parents: list[Any], members: list[Any], options: list[Any]) -> type:
        return made_class(self, name, parents, members, {k: self.decode(v) for k, v in options})

    def _call(
        self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], world: Fields | None, skip: int = 0
    ) -> list[Any]:
        arguments = CallArguments(self, args, kwargs)
        given, named = arguments.given, arguments.named
        try:
            with applied(self, world), released(self.state):
                result = function(*given[skip:], **named)
            changed = arguments.changed()
            self.known = arguments.places({place for place, _ in changed})
            reply = ["ok", self._result(result, [*enumerate(given), *named.items()], changed)]
        except frames.Closed:
            raise
        except BaseException as err:  # noqa: BLE001 - as above
            self.known, result = {}, None
            reply = self._raised(err)
            changed = arguments.changed()
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

    def _raised(self, err: BaseException) -> list[Any]:
        err.__traceback__ = None  # its frames would hold on to the arguments
        with self.describer.told.part():
            return ["raise", self.describer.exception(err)]


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
        # the test asks for it by that name (no name of Python's where it is `Solution.f`), whatever stands behind it
        module.__dict__[entry] = make()
    peer.console.take_over()
    try:
        peer.loop()
    except frames.Closed:
        return 0
    return 0
