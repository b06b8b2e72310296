"""What an object of the solution can do, as methods of the class that stands for its own: each asks, none decides."""

from __future__ import annotations

import types
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ..ends import Connection
from .handles import MADE, MIXED, Handle, derived, iterated

SCALARS = (int, float, bool, complex, str, Fraction, Decimal)


def _call(self: Handle, *args: object, **kwargs: object) -> Any:
    return self._link.call(self._number, args, kwargs)


def _contains(self: Handle, item: object) -> bool:
    """An object that the test has made itself is asked; any other one is walked."""
    if self._origin == MADE:
        return bool(self._link.ask("contains", {"k": self._number}, self._link.encode(item)))
    walked: Any = self
    return any(item is found or item == found for found in walked)


def _exit(self: Handle, kind: object, value: BaseException | None, trace: object) -> Any:
    sent = [] if value is None else [self._link.encode(value)]
    return _swallows(self._link, bool(self._link.ask("exit", {"k": self._number}, *sent)), value)


async def _async_exit(self: Handle, kind: object, value: BaseException | None, trace: object) -> bool:
    sent = [] if value is None else [self._link.encode(value)]
    found = await self._link.ask("aexit", {"k": self._number}, *sent)
    return _swallows(self._link, bool(found), value)


def _swallows(link: Connection, swallows: bool, err: BaseException | None) -> bool:
    if swallows and err is not None:
        link.checks.take(err)
    return swallows


def _asking(operation: str, kind: type | None = None) -> Callable[..., Any]:
    def ask(self: Handle, *others: object) -> Any:
        found = self._link.ask(operation, {"k": self._number}, *[self._link.encode(o) for o in others])
        if kind is not None and type(found) is not kind:
            raise TypeError(f"no {kind.__name__}")
        return found

    return ask


def _with_handles(operation: str, is_reflected: bool = False) -> Callable[..., Any]:
    """An operator between two objects of the solution. With a value of the test it could answer what the test expects
    (`f(x) - 3 == 0`), so there one side is an object that the test has made, and the answer an object again."""

    def ask(self: Handle, other: object) -> Any:
        is_plain = not isinstance(other, Handle)
        if is_plain and not self._link.trusted and not (self._origin and type(other) in SCALARS):
            self._link.untrusted = True
            return NotImplemented
        sides = [{"k": self._number}, self._link.encode(other)]
        found = self._link.ask(operation, *(reversed(sides) if is_reflected else sides))
        if is_plain and not self._link.trusted and not isinstance(found, Handle):
            self._link.untrusted = True
            return NotImplemented
        is_mixed = not isinstance(other, Handle) or MIXED in (self._origin, other._origin)
        return derived(found, MIXED if is_mixed else self._origin)

    return ask


def _number_of(operation: str, kind: type | None = None) -> Callable[..., Any]:
    """A number made of an object; not of one that is an object and a value of the test taken together."""
    asked = _asking(operation, kind)

    def ask(self: Handle, *others: object) -> Any:
        if self._origin == MIXED and not self._link.trusted:
            self._link.untrusted = True
            raise TypeError("an object of the solution and a value of the test make no number")
        return derived(asked(self, *others), self._origin)

    return ask


def _compared(operation: str) -> Callable[..., Any]:
    def ask(self: Handle, other: object) -> Any:
        if not self._link.trusted:
            self._link.untrusted = True
            return NotImplemented
        return self._link.ask(operation, {"k": self._number}, self._link.encode(other))

    return ask


def _alone(operation: str) -> Callable[..., Any]:
    asked = _asking(operation)
    return lambda self: derived(asked(self), self._origin)


def _awaited(self: Handle) -> Any:
    return self._link.ask("await", {"k": self._number}).__await__()


def _bound(self: Handle, instance: object, owner: object = None) -> Any:
    """A function of the solution as a method of a class of the test, or a descriptor's answer."""
    if isinstance(self, types.FunctionType):
        return self if instance is None else types.MethodType(self, instance)
    sent = [] if instance is None else [self._link.encode(instance)]
    return self._link.ask("dget", {"k": self._number}, self._link.encode(owner), *sent)


ABILITIES: dict[str, Callable[..., Any]] = {
    "__call__": _call,
    "__iter__": lambda self: iterated(self._link.ask("iter", {"k": self._number})),
    "__next__": _asking("next"),
    "__len__": _number_of("len", int),
    "__contains__": _contains,
    "__getitem__": _asking("item"),
    "__setitem__": _asking("setitem"),
    "__delitem__": _asking("delitem"),
    "__enter__": _asking("enter"),
    "__exit__": _exit,
    "__reversed__": lambda self: iterated(self._link.ask("reversed", {"k": self._number})),
    "__bool__": _number_of("bool", bool),
    "__index__": _number_of("index", int),
    "__int__": _number_of("int", int),
    "__float__": _number_of("float", float),
    "__aiter__": _asking("aiter"),
    "__anext__": _asking("anext"),
    "__aenter__": _asking("aenter"),
    "__aexit__": _async_exit,
    "__await__": _awaited,
    "__get__": _bound,
    "__set__": _asking("dset"),
    "__delete__": _asking("ddel"),
    "__set_name__": _asking("dname"),
}
ABILITIES |= {f"__{n}__": _number_of(n) for n in ("round", "abs")}
ABILITIES |= {f"__{n}__": _alone(n) for n in ("neg", "pos", "invert")}
BETWEEN = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
ABILITIES |= {f"__{n}__": _with_handles(n) for n in BETWEEN}
ABILITIES |= {f"__r{n}__": _with_handles(n, True) for n in BETWEEN}
ABILITIES |= {f"__{n}__": _compared(n) for n in ("lt", "le", "gt", "ge")}
# with `trusted_objects` the solution's own operators decide, so the verdict comes from the solution's code
TRUSTED: dict[str, Callable[..., Any]] = {f"__{n}__": _compared(n) for n in ("eq", "ne")} | {
    "__hash__": _asking("hash", int),
    "__contains__": _asking("contains"),
}


EMPTY: tuple[Any, ...] = ([], (), "", {}, range(0), set())
KINDS: dict[tuple[str, str], type] = {
    ("builtins", kind.__qualname__): kind
    for kind in (
        types.AsyncGeneratorType,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
        map,
        filter,
        zip,
        enumerate,
        reversed,
        property,
        staticmethod,
        classmethod,
        *(type(iter(o)) for o in EMPTY),
    )
}
"""Classes of the interpreter that a handle may be taken for; none of them compares equal to anything."""
