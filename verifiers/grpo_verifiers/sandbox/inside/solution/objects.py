"""The solution's side of a test program that runs elsewhere: answers calls, hands out handles for what is no plain value.

Nothing here is trusted. Arguments that a call has changed are sent back, so that in-place tasks can be tested.
"""

from __future__ import annotations

import builtins
import copy
import operator
import threading
import types
from collections.abc import Callable
from typing import Any

from .. import frames, wire
from ..wire import Value
from ..writing import write_back
from .describe import Describer
from .lent import Console, FromTest, applied, made_class, test_object

NO_ENTRY = 97
MUTABLE_TAGS = frozenset({"d", "s", "B", "Q", "D", "na", "o", "io"})
CONTAINERS = (list, dict, set, bytearray)


class Peer(wire.Coder):
    """The connection and the objects that have been handed out."""

    def __init__(self, fd: int, module: types.ModuleType, shared: tuple[str, ...]) -> None:
        self.fd, self.module, self.shared = fd, module, shared
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.lent: dict[tuple[str, int], Any] = {}
        self.lock = threading.RLock()
        self.describer = Describer(self)
        self.console = Console(self)
        self.aliases: dict[int, list[Any]] = {}

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

    def subclass(self, value: Value, kind: type) -> Any:
        """Values of the solution's own subclasses of plain types that keep their class."""
        return self.describer.value(value, kind)

    def other(self, value: Value) -> Any:
        """What is no plain value: by its number."""
        kind = type(value)
        if isinstance(value, FromTest):
            return {value._tag: value._number}
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
                raise StopIteration
            if message[0] == "exc":
                kind = getattr(builtins, message[1], Exception)
                raise kind(*self.decode(message[2]))
            if message[0] == "live":
                for number, value in message[1]:
                    write_back(self.objects[number], self.decode(value))
                continue
            reply = self.answer(message)
            with self.lock:
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
                return ["ok", [[self.encode(names[n])] if n in names else None for n in message[1]]]
            if message[0] == "subclass":
                made = made_class(self, *message[1:])
                return ["ok", self.number(made)]
            if message[0] == "global":
                self.module.__dict__[message[1]] = self.decode(message[2])
                return ["ok", None]
            self.aliases = {}
            if message[0] == "get":
                value = getattr(self.decode(message[1]), message[2])
                made = self.encode(value)
                # the test may change what it finds there, and count on its identity
                return ["ok", {"L": [self.number(value), made]} if type(value) in CONTAINERS else made]
            return ["ok", self.encode(OPERATIONS[message[0]](*[self.decode(a) for a in message[1:]]))]
        except frames.Closed:
            raise
        except BaseException as err:  # noqa: BLE001 - every exception of the solution goes to the test
            return self._raised(err)

    def _call(
        self,
        function: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
        world: Value,
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
            self.aliases = self._places(args, given, kwargs, named, touched)
            reply = ["ok", self.encode(result)]
        except frames.Closed:
            raise
        except BaseException as err:  # noqa: BLE001 - as above
            self.aliases = {}
            reply = self._raised(err)
            changed = self._changed(args, given, kwargs, named, fields)
        return [*reply, changed] if changed else reply

    def _changed(
        self,
        args: list[Any],
        given: list[Any],
        kwargs: dict[str, Any],
        named: dict[str, Any],
        fields: list[Any],
    ) -> list[list[Any]]:
        self.aliases = {}
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
                if type(was) is dict and "io" in was:
                    text: Any = value
                    return {"io": [text.getvalue(), text.tell()]}
                return self.encode(value)
            except (RecursionError, wire.NotPlain, ValueError):
                return {"x": 0}
        if type(was) is dict and ("t" in was or "n" in was):
            return self.encode(value)
        return was

    def _places(
        self,
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

    def _raised(self, err: BaseException) -> list[Any]:
        return ["raise", self.describer.exception(err)]


def _find(value: Value, path: list[Any], places: dict[int, list[Any]], depth: int) -> None:
    if type(value) not in CONTAINERS or id(value) in places or depth > 20 or len(places) > 5000:
        return
    places[id(value)] = path
    if type(value) is list:
        for i, item in enumerate(value):
            if type(item) in CONTAINERS:
                _find(item, [*path, i], places, depth + 1)
    elif type(value) is dict:
        for key, item in value.items():
            if type(item) in CONTAINERS and type(key) in (str, int):
                _find(item, [*path, key], places, depth + 1)


def _exit(value: Value, error: Any = None) -> Any:
    return value.__exit__(type(error) if error is not None else None, error, None)


def received(peer: Peer, tag: str, body: Value) -> Any:
    if tag == "k":
        return peer.objects[body]
    if tag == "cb":
        found = peer.lent.get((tag, body[0]))
        if found is None:
            found = peer.lent[tag, body[0]] = FromTest(peer, tag, body[0])
            for name, value in zip(("__name__", "__qualname__", "__doc__"), body[1:], strict=True):
                object.__setattr__(found, name, value)
        return found
    if tag in ("it", "co"):
        return peer.lent.setdefault((tag, body), FromTest(peer, tag, body))
    if tag == "L":
        return peer.objects[body]
    if tag == "ob":
        number, name, dunders = body
        found = peer.lent.get((tag, number))
        if found is None:
            found = peer.lent[tag, number] = test_object(peer, number, name, dunders)
        return found
    if tag == "io":
        import io

        made: Any = io.StringIO(body[0])
        made.seek(body[1])
        return made
    if tag == "mod":
        return __import__(body, fromlist=["x"])
    if tag == "g":
        module, name = body
        found = __import__(module, fromlist=["x"]) if module != "builtins" else builtins
        for part in name.split("."):
            found = getattr(found, part)
        return found
    if tag == "en":
        return peer.objects[body[0]][body[1]]
    if tag == "nt":
        return peer.objects[body[0]]._make([peer.decode(v) for v in body[1]])
    if tag == "xe":
        module, name, args = body
        return received(peer, "g", [module, name])(*[peer.decode(a) for a in args])
    if tag == "o":
        name, attributes = body
        cls = peer.module.__dict__[name]
        made = cls.__new__(cls)
        for key, value in attributes:
            object.__setattr__(made, key, peer.decode(value))
        return made
    raise wire.BadWire(tag)


class SolutionLoop:
    """The solution's event loop, which goes on a little each time the test program awaits something of it."""

    STEP_S = 0.005

    def __init__(self) -> None:
        self.loop: Any = None
        self.tasks: dict[int, Any] = {}

    def step(self, coroutine: Value) -> list[Any]:
        """[True, value] once a coroutine has ended, [False] before; raises what it raised."""
        import asyncio

        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        task = self.tasks.get(id(coroutine))
        if task is None:
            task = self.tasks[id(coroutine)] = asyncio.ensure_future(coroutine, loop=self.loop)
        self.loop.run_until_complete(asyncio.wait({task}, timeout=self.STEP_S))
        if not task.done():
            return [False]
        return [True, task.result()]

    def cancel(self, coroutine: Value) -> None:
        """Cancel its task and let it see that."""
        import asyncio

        task = self.tasks.get(id(coroutine))
        if task is not None and not task.done():
            task.cancel()
            self.loop.run_until_complete(asyncio.wait({task}, timeout=0.2))


LOOP = SolutionLoop()


async def _awaited(awaitable: Value) -> Any:
    return await awaitable


def _async_exit(value: Value, error: Any = None) -> Any:
    return _awaited(value.__aexit__(type(error) if error is not None else None, error, None))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "del": delattr,
    "item": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "iter": iter,
    "next": next,
    "send": lambda g, v: g.send(v),
    "throw": lambda g, *e: g.throw(*e),
    "close": lambda g: g.close(),
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "format": format,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "reversed": reversed,
    "costep": LOOP.step,
    "cocancel": LOOP.cancel,
    "await": _awaited,
    "aiter": lambda value: value.__aiter__(),
    "anext": lambda value: _awaited(value.__anext__()),
    "aenter": lambda value: _awaited(value.__aenter__()),
    "aexit": _async_exit,
    "enter": lambda value: value.__enter__(),
    "exit": _exit,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "abs": abs,
    "contains": operator.contains,
    "hash": hash,
    "round": round,
    "int": int,
    "float": float,
    "index": operator.index,
}


def serve(
    fd: int,
    module: types.ModuleType,
    define: Callable[[], None],
    entry: str | None,
    find_entry: Value,
    shared: tuple[str, ...],
) -> int:
    """Define the solution, then answer until the test program hangs up."""
    define()
    peer = Peer(fd, module, shared)
    if entry:
        make = find_entry(module, entry)
        if make is None:
            return NO_ENTRY
        if entry.isidentifier():
            module.__dict__[entry] = make()
    peer.console.take_over()
    try:
        peer.loop()
    except frames.Closed:
        return 0
    return 0
