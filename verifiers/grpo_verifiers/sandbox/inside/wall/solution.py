"""The solution's end of the wall: reads a request, acts, replies. Nothing here is trusted.

A request brings the changes of shared containers, what is to be done, arguments, and what of the test's surroundings holds
meanwhile. The reply brings the result or the exception, the arguments that are not as they came, the containers that the
solution has kept, and what was printed.
"""

from __future__ import annotations

import _thread
import contextlib
import copy
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from .. import frames
from . import values, world
from .exports import Exports
from .proxies import ARITHMETIC
from .values import Value
from .write_back import MOST_SHARED, SHARED_KINDS

NO_ENTRY = 97
MUTABLE_TAGS = frozenset({"d", "s", "B", "Q", "D", "a", "F", "t", "n"})


OPERATIONS: dict[str, Callable[..., Any]] = {
    "sync": lambda: None,
    "get": getattr,
    "set": setattr,
    "del": delattr,
    "item": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "enter": lambda value: value.__enter__(),
    "exit": lambda value, err: value.__exit__(type(err) if err is not None else None, err, None),
    "plain": lambda value: values.plain_copy(value, type(value), also=values.LOOKALIKES),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f.__name__: f for f in (iter, next, len, bool, int, float, complex, str, repr, format, reversed, abs, round)},
    **{n: getattr(operator, f"__{n}__") for n in ("index", "contains", "neg", "pos", "invert", *ARITHMETIC)},
    **{f"i{n}": getattr(operator, f"__i{n}__") for n in ARITHMETIC},
}


class SolutionServer:
    """Answers the requests of one test program."""

    def __init__(self, fd: int, module: types.ModuleType, shared: tuple[str, ...]) -> None:
        self.fd, self.module = fd, module
        self.exports = Exports(module, shared, self.call_back)
        self.console = world.CONSOLE
        # held but for the time in which code of the solution runs: one of its threads may call a function of the test then
        self.lock = _thread.RLock()

    def serve(self) -> None:
        """Serve until the test program hangs up."""
        with self.lock:
            while True:
                self._send(*self.answer(self._receive()))

    def _receive(self) -> list[Any]:
        message: list[Any] = frames.DECODE(frames.read(self.fd).decode())
        return message

    def _send(self, kind: str, body: Value, extras: dict[str, Any]) -> None:
        if printed := self.console.take():
            extras["o"] = printed
        try:
            frames.send(self.fd, [kind, body, extras])
        except frames.TooLarge:
            frames.send(self.fd, ["limit", "output", {}])

    def call_back(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the test, which waits for this side; requests that come meanwhile are answered."""
        exports = self.exports
        with self.lock:
            memo = exports.memo, exports.met
            try:
                exports.memo, exports.met = {}, []
                sent = [values.encode(a, exports) for a in args]
                named = {k: values.encode(v, exports) for k, v in kwargs.items()}
                frames.send(self.fd, ["back", number, sent, named, {"o": self.console.take()}])
                while True:
                    message = self._receive()
                    if len(message) == 3 and message[0] in ("v", "x"):
                        break
                    self._send(*self.answer(message))
                for at, now in message[2].get("l", ()):
                    exports.write(exports.shared[at], exports.read(now))
                found = exports.read(message[1][0])
            finally:
                exports.memo, exports.met = memo
        if message[0] == "x":
            raise found
        return found

    def answer(self, message: list[Any]) -> tuple[str, Any, dict[str, Any]]:
        """The reply to one request, made in the world of the test; whatever the solution raises is a reply too."""
        exports, extras = self.exports, dict[str, Any]()
        exports.new.clear()
        exports.touched.clear()
        *head, args, kwargs, about = message
        with exports.message(), world.applied(about, extras):
            for number, now in about.get("l", ()):
                exports.write(exports.shared[number], exports.read(now))
            if head[0] == "names":
                found = self.module.__dict__
                known = [[self._result(found[n])] if n in found else None for n in head[1]]
                return "v", known, extras
            act = OPERATIONS[head[1]] if head[0] == "op" else values.decode(head[1], exports)
            given = [values.decode(a, exports) for a in args]
            named = {k: values.decode(v, exports) for k, v in kwargs.items()}
            touched = exports.touched[:]
            try:
                memo = exports.memo, exports.met
                self.lock.release()
                try:
                    result = act(*given, **named)
                finally:
                    self.lock.acquire()
                    exports.memo, exports.met = memo
                exports.written = self._changed(args, kwargs, given, named, extras)
                reply: tuple[str, Any] = "v", self._result(result)
                exports.written = {}
            except frames.Closed:
                raise
            except BaseException as err:  # noqa: BLE001 - every exception of the solution goes to the test
                err.__traceback__ = result = None  # its frames would hold on to the arguments
                exports.written = {}
                exports.forget_new()
                self._changed(args, kwargs, given, named, extras)
                reply = "x", self._raised(err)
            self._share(given, named, result, extras)
            if fresh := [[n, f] for n in touched if (f := self._fields(n)) is not None]:
                extras["q"] = fresh
            return *reply, extras

    def _raised(self, err: BaseException) -> Any:
        try:
            return self.exports.error(err)
        except Exception:  # noqa: BLE001 - what it holds cannot be sent
            self.exports.forget_new()
            return {"c": ["builtins:RuntimeError"], "a": [], "s": "", "d": []}

    def _fields(self, number: int) -> list[Any] | None:
        with self.exports.message():
            return self.exports.fields(self.exports.objects.get(number))

    def _changed(
        self, args: list[Any], kwargs: dict[str, Any], given: list[Any], named: dict[str, Any], extras: dict[str, Any]
    ) -> dict[int, Any]:
        """The arguments that are not as they came, by identity, with their places; their content goes with the reply."""
        changed, pairs = list[Any](), [*zip(range(len(args)), args, given, strict=True)]
        pairs += [(k, m, named[k]) for k, m in kwargs.items()]  # type: ignore[misc]
        for place, was, value in pairs:
            if type(was) is list or (type(was) is dict and not MUTABLE_TAGS.isdisjoint(was)):
                now = self.exports.content(value)
                if now != was:
                    changed.append([place, now])
        if changed:
            extras["w"] = changed
            # a result that is or holds a part of these goes as a copy: the test's own is written at the statement's end
            moved, as_it_came = {place for place, _ in changed}, set[int]()
            for place, _, value in pairs:
                if place not in moved:
                    _find(value, as_it_came)
            memo = self.exports.memo
            self.exports.memo = {i: n for i, n in memo.items() if i in as_it_came}
        return {id(value): place for place, _, value in pairs if place in moved} if changed else {}

    def _result(self, value: Value) -> Any:
        """The message for a result; a container that the solution holds as well is shared from now on."""
        exports = self.exports
        if type(value) in SHARED_KINDS:
            known = id(value) in exports.numbers or id(value) in exports.memo or id(value) in exports.written
            # referred to by the caller's name, the one here and the argument of `getrefcount`
            if not known and len(exports.shared) < MOST_SHARED and sys.getrefcount(value) > 3:
                number = exports.number(value)
                entry = exports.share(number, value, is_own=True)
                return {"L": [number, entry.told]}
        return values.encode(value, exports)

    def _share(self, given: list[Any], named: dict[str, Any], result: Any, extras: dict[str, Any]) -> None:
        """Share the arguments that somebody here still holds, and send what has changed in those that are shared."""
        exports = self.exports
        found = list[Any]()
        for place in (*range(len(given)), *named):
            value = named[place] if type(place) is str else given[place]
            is_new = type(value) in SHARED_KINDS and id(value) not in exports.numbers
            # referred to by the list of arguments, the memo, the name here and the argument of `getrefcount`
            is_held = is_new and sys.getrefcount(value) - 4 - (value is result) > 0
            if is_held and len(exports.shared) < MOST_SHARED:
                number = exports.number(value)
                exports.share(number, value)
                found.append([place, number])
        if found:
            extras["k"] = found
        if exports.shared and (moved := exports.changed()):
            extras["l"] = moved


def _find(value: Value, found: set[int]) -> None:
    """The containers in a value, by identity."""
    if id(value) in found or not (
        type(value) in SHARED_KINDS or isinstance(value, tuple) or hasattr(value, "__dict__")
    ):
        return
    found.add(id(value))
    parts = (
        value.values() if isinstance(value, dict) else value if isinstance(value, Iterable) else vars(value).values()
    )
    for part in parts:
        _find(part, found)


def serve(
    fd: int,
    module: types.ModuleType,
    define: Callable[[], None],
    entry: str | None,
    find_entry: Callable[[types.ModuleType, str], Callable[[], Any] | None],
    shared: tuple[str, ...],
) -> int:
    """Define the solution, then answer until the test program hangs up; the exit status."""
    define()
    if entry:
        make = find_entry(module, entry)
        if make is None:
            return NO_ENTRY
        # the test asks for it by that name (no name of Python's where it is `Solution.f`), whatever stands behind it
        module.__dict__[entry] = make()
    server = SolutionServer(fd, module, shared)
    sys.stdout, sys.stderr = server.console.streams.values()
    sys.stdin = server.console.input
    with contextlib.suppress(frames.Closed):
        server.serve()
    return 0
