"""The test program's end of the wall: a request, the calls of test functions that the solution makes meanwhile, the reply.

A reply answers the innermost request, and is taken for nothing but that. What a call has changed in its arguments is kept
back and written at the end of the statement, so that a test's own reference value (`assert f(xs) == sorted(xs)`) is made
of the unchanged argument.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any
from weakref import WeakValueDictionary

from .. import frames
from . import exceptions, values, world
from .exceptions import Stopped, TimeIsUp, Unsupported
from .handed_over import HandedOver
from .proxies import DOUBTED, MADE, NEVER_NAMED, PLAIN_TYPES, PlainProxy, Proxy, ProxyMeta, alias, class_for, flagged
from .values import Value
from .write_back import SHARED_KINDS, SharedContainer, write_back

MOST_BYTES = 64 << 20
MOST_REQUESTS, MOST_NESTED, MOST_LIVE = 100_000, 64, 65_536
LONGEST_NAME = 256


class Connection(HandedOver):
    """The connection to one solution. `ended` is the first cause that ended it, "" as long as it goes on."""

    def __init__(self, fd: int, classes: frozenset[str], surroundings: world.Surroundings) -> None:
        super().__init__(classes)
        self.fd, self.world = fd, surroundings
        self.ended, self.detail = "", ""
        self.calls, self.requests, self.nested, self.received = 0, 0, 0, 0
        self.described_classes = dict[int, Any]()
        self.live: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.kept, self.highest = dict[int, Any](), 0
        self.swallowed = dict[str, BaseException]()
        """Checks of the test that failed in the hands of the solution, which has not raised them again."""
        self.raised = list[BaseException]()
        self.pending: deque[tuple[Any, Any]] = deque()
        self.originals = dict[int, tuple[Any, Any]]()
        self.given: tuple[dict[Any, Any], tuple[Any, ...], dict[str, Any]] = ({}, (), {})
        self.expects_stop = False

    # requests

    def names(self, wanted: list[str]) -> dict[str, Any]:
        """Those of these names that the solution defines, by position: it cannot bind what it was not asked for."""
        found = self._ask(["names", wanted], (), {}) if wanted else []
        named = {n: f[0] for n, f in zip(wanted, found, strict=True) if f and not any(f[0] is c for c in NEVER_NAMED)}
        for name, value in named.items():
            if type(value) is ProxyMeta and name.lstrip("_")[:1].isupper():
                value._is_named = True
        return named

    def call(self, function: Value, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, class or method of the solution."""
        self.calls += 1
        return self._ask(["call", function], args, kwargs)

    def construct(self, cls: Value, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make an object of a class. It is trusted to be what was asked for only as far as the test can see."""
        before = self.highest
        made = self.call(cls, args, kwargs)
        if isinstance(made, Proxy):
            fields, init = cls._compared, cls._init
            # an object that was there before is not the new one that was asked for
            is_bad = made._id <= before and not cls._is_enum
            if made._fields is not None and fields is not None:
                holds = dict(zip(fields, made._fields, strict=False))
                given = {**dict(zip(init, args, strict=False)), **kwargs}
                # no fields, or not all of what was given: any two such objects would be equal
                is_bad |= not fields or not all(n in holds and _equal(holds[n], v) for n, v in given.items())
            flagged(made, (MADE if cls._is_named else 0) | (DOUBTED if is_bad else 0))
        elif cls._is_named:
            flagged(made, MADE)
        return made

    def operate(self, name: str, *operands: Any) -> Any:
        """One operation on objects of the solution."""
        if name in ("get", "set", "del") and len(operands[1]) > LONGEST_NAME:
            raise AttributeError("a name of more than 256 characters")
        return self._ask(["op", name], operands, {})

    def _ask(self, head: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.ended:
            raise Stopped(self, "over")
        self.requests += head[0] != "names"
        if self.requests > MOST_REQUESTS:
            raise Stopped(self, "limit", "time")
        if self.nested >= MOST_NESTED:
            raise Stopped(self, "limit", "depth")
        outer, self.sent = self.sent, set()
        self.nested += 1
        try:
            with self.message():
                self._send([head[0], *self._encoded(head[1:], args, kwargs), self._extras()])
                return self._read(head, self._reply(), args, kwargs)
        finally:
            self.sent = outer
            self.nested -= 1

    def _encoded(self, head: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        try:
            if head and type(head[0]) not in (str, list):
                head = [values.encode(head[0], self)]
            return [
                *head,
                [values.encode(a, self) for a in args],
                {k: values.encode(v, self) for k, v in kwargs.items()},
            ]
        except values.NotPlain as err:
            raise Unsupported(self, str(err)) from None
        except RecursionError:
            raise Stopped(self, "limit", "depth") from None

    def _extras(self) -> dict[str, Any]:
        extras: dict[str, Any] = self.world.now()
        if self.shared and (changed := self.changed()):
            extras["l"] = changed
        return extras

    def _send(self, message: list[Any]) -> None:
        try:
            frames.send(self.fd, message)
        except frames.TooLarge:
            raise Stopped(self, "limit", "output") from None
        except frames.Closed:
            raise Stopped(self, "left_the_run") from None

    def _reply(self) -> tuple[str, Any, dict[str, Any]]:
        """The reply to the request that was sent, after the calls of test functions that come before it."""
        while True:
            with self._honest("no message"):
                data = frames.read(self.fd)
                self.received += len(data)
                message = frames.DECODE(data.decode())
            if self.received > MOST_BYTES or (type(message) is list and message[:1] == ["limit"]):
                raise Stopped(self, "limit", "output")
            is_list = type(message) is list
            if is_list and len(message) == 3 and message[0] in ("v", "x") and type(message[2]) is dict:
                return message[0], message[1], message[2]
            if not is_list or len(message) != 5 or message[0] != "back":
                raise Stopped(self, "false_message", "out of turn")
            self._send(self._called_back(message))

    @contextlib.contextmanager
    def _honest(self, what: str = "") -> Iterator[None]:
        """No message that is false may reach the test as an exception that it expects."""
        try:
            yield
        except frames.Closed:
            raise Stopped(self, "left_the_run") from None
        except RecursionError:
            raise Stopped(self, "limit", "depth") from None
        except MemoryError:
            raise Stopped(self, "limit", "memory") from None
        except Exception as err:  # noqa: BLE001 - whatever is wrong with a message, the solution has sent it
            raise Stopped(self, "false_message", what or f"{type(err).__name__}: {err}"[:200]) from None

    def _read(self, head: list[Any], reply: tuple[str, Any, dict[str, Any]], args: tuple[Any, ...], kwargs: Any) -> Any:
        """What a reply brings."""
        kind, body, extras = reply
        with self._honest():
            self.world.printed(extras.get("o", ()))
            if head[0] == "names":
                if kind == "x" or len(body) != len(head[1]):
                    raise values.BadWire("names")
                value: Any = [() if v is None else (values.decode(v[0], self),) for v in body]
            elif kind == "x":
                value = self._exception(body, head[-1] if head[0] == "op" else "call")
            else:
                self.given = dict(extras.get("w", ())), args, kwargs
                value = values.decode(body, self)
            self._keep(extras, args, kwargs)
        if kind == "x":
            raise value
        return value if head[1] == "get" and type(args[0]) is ProxyMeta else alias(value)

    def _keep(self, extras: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for place, now in extras.get("w", ()):
            self.pending.append((kwargs[place] if type(place) is str else args[place], self.read(now)))
        for number, fields in extras.get("q", ()):
            if number in self.sent and (proxy := self.live.get(number)) is not None and proxy._fields is not None:
                object.__setattr__(proxy, "_fields", tuple([self.read(f) for f in fields]))
        for place, number in extras.get("k", ()):
            value = kwargs[place] if type(place) is str else args[place]
            if type(number) is int and number not in self.shared and type(value) in SHARED_KINDS:
                self.share(number, value)
        for number, now in extras.get("l", ()):
            entry, value = self.shared[number], self.read(now)
            if entry.is_own:
                self.write(entry, value)
            else:
                entry.is_due = True
                self.pending.append((entry, value))
        self.world.take(extras)

    def commit(self) -> None:
        """Write what the calls of the finished statement have changed."""
        while self.pending:
            target, value = self.pending.popleft()
            if isinstance(target, SharedContainer):
                self.write(target, value)
            else:
                write_back(target, value, self.numbers)

    def same(self, one: object, other: object) -> bool:
        """`is`, as it would be in one process: a changed argument that was returned is that argument."""
        first, second = (self.originals.get(id(v), (v, v))[1] for v in (one, other))
        if isinstance(first, Proxy) and isinstance(second, Proxy):
            return bool(first._id == second._id)
        return first is second

    # calls of the test's functions

    def _called_back(self, message: list[Any]) -> list[Any]:
        """The answer to a call of something that the test has handed over."""
        _, number, args, kwargs, extras = message
        key = json.dumps([number, args, kwargs])
        with self._honest():
            self.world.printed(extras.get("o", ()))
            target = self.functions[number]
            if isinstance(target, type | BaseException) or number < 0:
                raise values.BadWire("no function")
            with self.message():
                given = [values.decode(a, self) for a in args]
                named = {str(k): values.decode(v, self) for k, v in kwargs.items()}
        try:
            found = target(*given, **named)
            self.swallowed.pop(key, None)  # it was asked again, and went well
            with self.message():
                return ["v", *self._encoded([], (found,), {})[:1], self._extras()]
        except (Stopped, TimeIsUp):
            raise
        except BaseException as err:  # noqa: BLE001 - whatever a test function raises, the solution may catch
            if isinstance(err, AssertionError):
                self.swallowed[key] = err
            with self.message():
                return ["x", *self._encoded([], (err,), {})[:1], self._extras()]

    def tag(self, tag: str, body: Value) -> Any:
        """What a tag of the solution means: never a name that it chose outside of closed tables."""
        if tag == "h":
            return self._proxy(*body)
        if tag == "C":
            return self._class(body)
        if tag == "M":
            return self.met[body]
        if tag == "L":
            return self._shared(*body)
        if tag == "W":  # a changed argument that is in the result as well: another object until the statement's end
            now, args, kwargs = self.given
            value = self.read(now[body])
            self.originals[id(value)] = value, kwargs[body] if type(body) is str else args[body]
            return value
        if tag == "p":
            return self._plain(*body)
        if tag == "k":
            if type(body) is not int or not 0 <= body < len(self.functions):
                raise values.BadWire("a number never handed out")
            return self.functions[body]
        if tag == "g":
            found = getattr(sys.modules["builtins"], body)
            if not isinstance(found, type):
                raise values.BadWire(body)
            return found
        if tag == "x":
            return self._exception(body, "value")
        if tag == "S":
            if body not in self.classes:
                raise values.BadWire("not a class of the prompt")
            return self.namespace[body]
        if tag == "F":
            return self._of_the_prompt(*body)
        raise values.BadWire(f"unexpected tag {tag!r}")

    def _proxy(self, number: int, about: Value, fields: list[Any] | None = None) -> Any:
        cls = self._class(about)
        found = self.live.get(number) if type(number) is int else None
        is_new = found is None
        if is_new:
            self._note(number)
            if not issubclass(cls, Proxy):
                raise values.BadWire("no class of objects")
            found = object.__new__(cls)
            for name, value in (("_id", number), ("_fields", None), ("_flags", 0)):
                object.__setattr__(found, name, value)
            self.live[number] = found
        self.begin(found)
        now = [values.decode(f, self) for f in fields or ()]
        if fields is not None and cls._compared is not None and is_new:
            object.__setattr__(found, "_fields", tuple(now))
        return found

    def _note(self, number: Any) -> None:
        if type(number) is not int or not 0 < number < 1 << 40:
            raise values.BadWire("no number")
        self.highest = max(self.highest, number)
        if len(self.live) + len(self.kept) > MOST_LIVE:
            raise Stopped(self, "limit", "memory")

    def _class(self, about: Value) -> Any:
        if type(about) is int:
            return self.described_classes[about]
        number, name = about["n"], about["t"]
        self._note(number)
        if number in self.described_classes or type(name) is not str or not all(type(n) is str for n in about["m"]):
            raise values.BadWire("no class")
        bases = tuple([self._class(b) for b in about["b"]])
        if "e" in about:
            own = tuple(b for b in bases if issubclass(b, BaseException))
            base = exceptions.library_class(about["e"])
            parents = own if any(issubclass(o, base) for o in own) else (*own, base)
            made: Any = ProxyMeta(name, parents, exceptions.class_body(number, self))
        else:
            made = class_for(self, about, bases, PLAIN_TYPES.get(about.get("p")))
        self.described_classes[number] = made
        return made

    def _plain(self, number: int, about: Value, plain: Any) -> Any:
        cls, value = self._class(about), values.decode(plain, self)
        found = self.kept.get(number)
        if found is None:
            self._note(number)
            if not issubclass(cls, PlainProxy):
                raise values.BadWire("no kind of plain value")
            found = self.kept[number] = PLAIN_TYPES[cls._plain].__new__(cls, value)
            found.__dict__["_id"] = number
        return found

    def _shared(self, number: int, message: Value = None) -> Any:
        entry = self.shared.get(number)
        if entry is None:
            value = self.read(message)
            if type(number) is not int or type(value) not in SHARED_KINDS:
                raise values.BadWire("no container")
            entry = self.share(number, value, is_own=True)
        return entry.value

    def _of_the_prompt(self, name: str, attributes: list[Any]) -> Any:
        """An object of a class that the prompt defines: the attributes come from the solution, the class is the prompt's."""
        if name not in self.classes:
            raise values.BadWire("not a class of the prompt")
        cls = self.namespace[name]
        made = self.begin(cls.__new__(cls))
        for key, value in attributes:
            found = inspect.getattr_static(cls, key, None)
            hides = callable(found) or (hasattr(type(found), "__get__") and not inspect.ismemberdescriptor(found))
            if type(key) is not str or not key.isidentifier() or key.startswith("__") or hides:
                raise values.BadWire("bad attribute")
            object.__setattr__(made, key, values.decode(value, self))
        return made

    def _exception(self, about: Value, request: str) -> BaseException:
        """The exception that was raised: the test's own object where it is one of the test's."""
        if "k" in about and type(about["k"]) is int and len(about) == 1:
            err = self.tag("k", about["k"])
            if not isinstance(err, BaseException):
                raise values.BadWire("no exception")
            if not isinstance(err, Exception) or any(c.__name__ in exceptions.NEVER_PASSED for c in type(err).__mro__):
                raise Stopped(self, "left_the_run", type(err).__name__)
            self.swallowed = {k: e for k, e in self.swallowed.items() if e is not err}
            return err
        named = about["c"]
        kind = exceptions.library_class(named) if type(named) is list else self._class(named)
        if not issubclass(kind, BaseException):
            raise values.BadWire("no exception")
        if any(c.__name__ in exceptions.NEVER_PASSED for c in kind.__mro__) and type(named) is dict:
            raise Stopped(self, "left_the_run", kind.__name__)
        stops = next((s for s in (StopIteration, StopAsyncIteration, GeneratorExit) if issubclass(kind, s)), None)
        if stops is not None and request not in ("next", "value") and not self.expects_stop:
            kind = RuntimeError
        elif stops is not None:
            kind = stops
        args = [self.read(a) for a in about["a"]]
        attributes = [[n, self.read(v)] for n, v in about["d"]]
        err = exceptions.made(kind, args, about, attributes)
        if type(about.get("k")) is dict:
            err.__cause__ = self._exception(about["k"], "value")
        self.raised.append(err)
        return err


def _equal(one: Value, other: Value) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # arrays
        return False
