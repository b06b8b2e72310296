"""The solution's side of a test program that runs elsewhere: answers calls, hands out handles for what is no plain value.

Nothing here is trusted. Arguments that a call has changed are sent back, so that in-place tasks can be tested.
"""

from __future__ import annotations

import builtins
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from . import frames, wire

NO_ENTRY = 97
MUTABLE_TAGS = frozenset({"d", "s", "B", "Q", "D", "na", "o"})


class FromTest:
    """Something of the test program, by its number there: a function, an iterator or an object of a class of the test."""

    def __init__(self, peer: Peer, tag: str, number: int) -> None:
        for name, value in (("_peer", peer), ("_tag", tag), ("_number", number)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if self._tag != "ob" or name.startswith("_"):
            raise AttributeError(name)
        return self._peer.ask(["get", self._number, name])

    def __setattr__(self, name: str, value: object) -> None:
        if self._tag != "ob" or name.startswith("_"):
            raise AttributeError(name)
        self._peer.ask(["set", self._number, name, self._peer.encode(value)])

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._peer.ask(
            ["call", self._number, [self._peer.encode(a) for a in args], self._peer.encode(kwargs)]
        )

    def __iter__(self) -> FromTest:
        if self._tag != "it":
            raise TypeError("not iterable")
        return self

    def __next__(self) -> Any:
        if self._tag != "it":
            raise TypeError("not an iterator")
        return self._peer.ask(["next", self._number])


class Peer:
    """The connection and the objects that have been handed out."""

    def __init__(self, fd: int, module: types.ModuleType, shared: tuple[str, ...]) -> None:
        self.fd, self.module, self.shared = fd, module, shared
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.lent: dict[tuple[str, int], FromTest] = {}

    def encode(self, value: object) -> Any:
        return wire.encode(value, self._refer)

    def _refer(self, value: Any) -> Any:
        kind = type(value)
        if kind is FromTest:
            return {value._tag: value._number}
        name = kind.__name__
        if name in self.shared and self.module.__dict__.get(name) is kind:
            return {"o": [name, [[k, self.encode(v)] for k, v in vars(value).items()]]}
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        about: dict[str, Any] = {"n": number, "t": name, "c": callable(value)}
        if isinstance(value, type):
            about["t"] = value.__name__
            if issubclass(value, BaseException):
                about["e"] = bases(value)
        elif hasattr(kind, "__bool__") or hasattr(kind, "__len__"):
            about["b"] = bool(value)
        return {"h": about}

    def decode(self, message: object) -> Any:
        return wire.decode(message, self._resolve)

    def _resolve(self, tag: str, body: Any) -> Any:
        if tag == "k":
            return self.objects[body]
        if tag in ("cb", "it", "ob"):
            return self.lent.setdefault((tag, body), FromTest(self, tag, body))
        if tag == "io":
            import io

            return io.StringIO(body)
        if tag == "g":
            module, name = body
            found: Any = __import__(module, fromlist=["x"]) if module != "builtins" else builtins
            for part in name.split("."):
                found = getattr(found, part)
            return found
        if tag == "o":
            name, attributes = body
            cls = self.module.__dict__[name]
            made = cls.__new__(cls)
            for key, value in attributes:
                object.__setattr__(made, key, self.decode(value))
            return made
        raise wire.BadWire(tag)

    def ask(self, message: object) -> Any:
        """A question to the test program, answered after any further calls it makes meanwhile."""
        frames.send(self.fd, message)
        return self.loop()

    def loop(self) -> Any:
        """Serve until an answer to our own question comes."""
        while True:
            message = frames.receive(self.fd)
            if message[0] == "ret":
                return self.decode(message[1])
            if message[0] == "stop":
                raise StopIteration
            if message[0] == "exc":
                kind = getattr(builtins, message[1], Exception)
                raise kind(*self.decode(message[2]))
            frames.send(self.fd, self.answer(message))

    def answer(self, message: list[Any]) -> list[Any]:
        """The reply to one request; whatever the solution raises is a reply too."""
        try:
            if message[0] == "call":
                return self._call(self.objects[message[1]], message[2], message[3])
            if message[0] == "names":
                names = {n: self.module.__dict__[n] for n in message[1] if n in self.module.__dict__}
                return ["ok", [[name, self.encode(value)] for name, value in names.items()]]
            return ["ok", self.encode(OPERATIONS[message[0]](*[self.decode(a) for a in message[1:]]))]
        except frames.Closed:
            raise
        except BaseException as err:  # noqa: BLE001 - every exception of the solution goes to the test
            return self._raised(err)

    def _call(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        given = [self.decode(a) for a in args]
        named = {k: self.decode(v) for k, v in kwargs.items()}
        try:
            reply = ["ok", self.encode(function(*given, **named))]
        except frames.Closed:
            raise
        except BaseException as err:  # noqa: BLE001 - as above
            reply = self._raised(err)
        changed = [
            [i, now]
            for i, (was, value) in enumerate(zip(args, given, strict=True))
            if (now := self._now(was, value)) != was
        ]
        changed += [[k, now] for k, was in kwargs.items() if (now := self._now(was, named[k])) != was]
        return [*reply, changed] if changed else reply

    def _now(self, was: object, value: object) -> Any:
        if type(was) is list or (type(was) is dict and not MUTABLE_TAGS.isdisjoint(was)):
            try:
                return self.encode(value)
            except (RecursionError, wire.NotPlain):
                return {"x": 0}
        if type(was) is dict and ("t" in was or "n" in was):
            return self.encode(value)
        return was

    def _raised(self, err: BaseException) -> list[Any]:
        try:
            args = [self.encode(a) for a in BaseException.__getattribute__(err, "args")]
        except (RecursionError, TypeError, MemoryError):
            args = []
        kind = type(err)
        about = {"e": bases(kind), "t": kind.__name__}
        if kind.__module__ not in ("builtins", *STD_EXCEPTIONS):
            about |= self._refer(kind)["h"]
        return ["raise", about, args]


STD_EXCEPTIONS = ("json.decoder", "decimal", "statistics", "re", "struct", "queue", "zoneinfo")


def bases(kind: type) -> list[str]:
    """The names of an exception class's standard ancestors, nearest first."""
    return [
        f"{c.__module__}.{c.__qualname__}"
        for c in kind.__mro__
        if c.__module__ == "builtins"
        or (
            c.__module__ in STD_EXCEPTIONS
            and getattr(sys.modules.get(c.__module__), c.__qualname__, None) is c
        )
    ]


def _exit(value: Any, kind: Any = None) -> Any:
    return value.__exit__(kind, kind() if kind else None, None)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "del": delattr,
    "item": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
    "repr": repr,
    "isinstance": isinstance,
    "issubclass": issubclass,
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
    "neg": operator.neg,
    "abs": abs,
    "contains": operator.contains,
    "hash": hash,
    "round": round,
    "int": int,
    "float": float,
}


def serve(
    fd: int, module: types.ModuleType, code: Any, entry: str | None, find_entry: Any, shared: tuple[str, ...]
) -> int:
    """Define the solution, then answer until the test program hangs up."""
    exec(code, module.__dict__)
    peer = Peer(fd, module, shared)
    if entry:
        make = find_entry(module, entry)
        if make is None:
            return NO_ENTRY
        if entry not in module.__dict__:
            module.__dict__[entry] = make()
    try:
        peer.loop()
    except frames.Closed:
        return 0
    return 0
