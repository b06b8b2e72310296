"""Proxies: what of the solution is no plain value, as the test program sees it.

Every class of the solution has a class here, made of `Proxy` and a table of special methods, so that `isinstance`,
`callable` and `hasattr` give the honest answer. No proxy decides a comparison on the solution's word. `==` is by number;
dataclass objects are compared by their fields, as they were when the object was handed out or last used. Operators are
asked of the solution only where the test has made an operand itself, by a class that it names (MADE). What such an
operator makes of an object and of anything that the test has not made gives no number any more (MIXED).
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import re
import types
from collections.abc import Callable
from typing import Any

from .exceptions import Unsupported, Untrusted
from .values import Value

MADE, MIXED, DOUBTED = 1, 2, 4
ASKED = {f"__{n}__" for n in ("name", "qualname", "doc", "module", "dict", "wrapped", "self", "func", "traceback")}
"""Attributes with such names that may be asked for."""
ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()  # noqa: SIM905
PLAIN_TYPES = {b.__name__: b for b in (int, str, float, tuple, bytes, frozenset)}
NEVER_NAMED = (AssertionError, Exception, BaseException)
LIKE: dict[str, type] = {
    "function": types.FunctionType,
    "generator": types.GeneratorType,
    "builtin_function_or_method": types.BuiltinFunctionType,
    **{c.__name__: c for c in (list, dict, set, collections.OrderedDict, collections.Counter, collections.deque)},
    "defaultdict": collections.defaultdict,
    "Pattern": re.Pattern,
}
"""Classes of the interpreter that a proxy may be taken for; none of them compares equal to anything."""


def _of_class(name: str) -> Callable[..., Any]:
    return lambda cls, *others: cls._link.operate(name, cls, *others)


def _asking(name: str) -> Callable[..., Any]:
    return lambda self, *others: type(self)._link.operate(name, self, *others)


def _text(name: str) -> Callable[..., str]:
    return lambda self, *others: checked(type(self)._link.operate(name, self, *others), str)


def _get(kind: Value, owner: object, name: str) -> Any:
    if name.startswith("__") and name not in ASKED:
        raise AttributeError(name)
    return kind._link.operate("get", owner, name)


class ProxyMeta(type):
    """The class of classes that represent the solution's: calling one makes an object there."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: object) -> Any:
        theirs = [vars(b)["_link"] for b in bases if "_number" in vars(b)]
        if theirs and "_number" not in body:
            raise Unsupported(theirs[0], "subclassing")
        return super().__new__(mcs, name, bases, body)

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        return cls._link.construct(cls, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or "_number" not in vars(cls):
            raise AttributeError(name)
        found = cls._link.operate("get", cls, name)
        # under another name these would catch a failed check of the test
        if any(found is c for c in NEVER_NAMED):
            raise AttributeError(name)
        return flagged(found, MADE if cls._is_named else 0)

    def __setattr__(cls, name: str, value: object) -> None:
        if name.startswith(("__", "_is_named")):
            return super().__setattr__(name, value)
        cls._link.operate("set", cls, name, value)
        return None

    __delattr__, __iter__, __len__ = _of_class("del"), _of_class("iter"), _of_class("len")

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: object) -> Any:
        return flagged(cls._link.operate("item", cls, key), MADE if cls._is_named else 0)

    @property
    def __doc__(cls) -> Any:  # type: ignore[override]
        return cls._link.operate("get", cls, "__doc__") if "_number" in vars(cls) else None

    _link: Any
    _is_named: bool


class Proxy(metaclass=ProxyMeta):
    __slots__ = ("__weakref__", "_fields", "_flags", "_id")

    def __getattr__(self, name: str) -> Any:
        return BoundMethod(self, name) if name in type(self)._methods else _get(type(self), self, name)

    __setattr__, __delattr__ = _asking("set"), _asking("del")
    __str__, __repr__, __format__ = _text("str"), _text("repr"), _text("format")
    __copy__ = _asking("copy")
    __dict__ = property(lambda self: type(self)._link.operate("get", self, "__dict__"))

    def __eq__(self, other: object) -> Any:
        kind = type(self)
        if isinstance(other, Proxy) and (self._flags | other._flags) & DOUBTED:
            raise Untrusted(kind._link, "==")  # its fields do not hold what it was made of
        if isinstance(other, Proxy) and self._id == other._id:
            return True
        if not isinstance(other, Proxy):
            if kind._plain:
                return kind._link.operate("plain", self) == other
            if self._flags & MADE and kind._has_equality and type(other) in PLAIN_KINDS:
                raise Untrusted(kind._link, "==")
            return NotImplemented  # what the test has made decides by itself: `approx`, `ANY`
        if kind._is_enum:
            return False
        if self._fields is not None and other._fields is not None:
            return kind is type(other) and self._fields == other._fields
        if (self._flags | other._flags) & MADE and (kind._has_equality or type(other)._has_equality):
            raise Untrusted(kind._link, "==")
        return False  # by identity, as in Python where no class of theirs has an operator

    def __hash__(self) -> int:
        return hash(self._id if self._fields is None else (type(self)._number, *self._fields))

    def __deepcopy__(self, memo: object) -> Any:
        return type(self)._link.operate("deepcopy", self)


class PlainProxy(metaclass=ProxyMeta):
    """What the classes share that represent the solution's own kinds of int, str, tuple and the like."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return _get(type(self), self, name)


class BoundMethod:
    """A method of an object of the solution, which is asked for only when it is called."""

    def __init__(self, owner: Any, name: str) -> None:
        self.__self__, self.__name__ = owner, name

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return type(self.__self__)._link.call(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return _get(type(self.__self__), self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoundMethod) and (self.__self__ is other.__self__ and self.__name__ == other.__name__)

    def __hash__(self) -> int:
        return hash((self.__name__, self.__self__._id))


def flagged(value: Value, flags: int) -> Any:
    """The same value, with flags added where it is a proxy."""
    if flags and isinstance(value, Proxy):
        object.__setattr__(value, "_flags", value._flags | flags)
    elif flags & MADE and isinstance(value, PlainProxy):
        value.__dict__["_is_made"] = True
    return value


def alias(value: Value) -> Any:
    """What an object that the test has made is as a result: the same one, on which the test has not leaned.

    A method that returns its own object in the place of a list or a number must not decide on its comparison.
    """
    if not isinstance(value, Proxy) or not value._flags & MADE or type(value)._is_enum:
        return value
    made = object.__new__(type(value))
    for name, held in (("_id", value._id), ("_fields", value._fields), ("_flags", value._flags & ~MADE)):
        object.__setattr__(made, name, held)
    return made


def checked(value: Value, kind: type) -> Any:
    """A value of exactly this type."""
    if type(value) is not kind:
        raise TypeError(f"no {kind.__name__}")
    return value


def _number(name: str, kind: type | None = None) -> Callable[..., Any]:
    """A number made of an object."""

    def ask(self: Value, *others: object) -> Any:
        if self._flags & MIXED:
            raise TypeError("an object of the solution and a value of the test make no number")
        found = type(self)._link.operate(name, self, *others)
        return checked(found, kind) if kind is not None else flagged(found, self._flags & MADE)

    return ask


def _contains(self: Value, item: object) -> bool:
    """An object that the test has made itself is asked; any other one is walked."""
    if self._flags & MADE:
        return bool(type(self)._link.operate("contains", self, item))
    return any(item is found or item == found for found in self)


def _exit(self: Value, kind: object, err: BaseException | None, trace: object) -> bool:
    swallows = bool(type(self)._link.operate("exit", self, err))
    if swallows and isinstance(err, AssertionError):
        type(self)._link.swallowed["with"] = err  # the test would not hear of its own failed check
    return swallows


def _ordered(name: str) -> Callable[..., Any]:
    decide = getattr(operator, name)

    def ask(self: Value, other: Value) -> Any:
        is_kin = isinstance(other, Proxy) and type(self) is type(other) and type(self)._has_order
        is_kin = is_kin and not (self._flags | other._flags) & DOUBTED
        if is_kin and self._fields is not None and other._fields is not None:
            return decide(self._fields, other._fields)
        flags = self._flags | (other._flags if isinstance(other, Proxy) else 0)
        if flags & MADE:
            raise Untrusted(type(self)._link, name)
        return NotImplemented

    return ask


SCALARS = (int, float, bool, complex, str)
PLAIN_KINDS = (*SCALARS, bytes, list, tuple, dict, set, frozenset)
GIVES_NUMBERS = ("add", "mul", "pow")
"""With one plain value of the test: what the others make of it could be what the test compares it with."""


def _between(name: str, is_reflected: bool = False) -> Callable[..., Any]:
    """An operator between two operands of which the test has made at least one."""

    def ask(self: Value, other: Value) -> Any:
        link = type(self)._link
        theirs = other._flags if isinstance(other, Proxy) else 0
        if not (self._flags | theirs) & MADE:
            return NotImplemented
        found = link.operate(name, *((other, self) if is_reflected else (self, other)))
        both = self._flags & theirs & MADE or (type(other) in SCALARS and name in GIVES_NUMBERS)
        both = both and not (self._flags | theirs) & MIXED
        if isinstance(found, Proxy):
            return flagged(found, MADE if both else MADE | MIXED)
        if both or found is NotImplemented:
            return found
        raise Untrusted(link, name)

    return ask


SPECIAL: dict[str, Callable[..., Any]] = {
    "__call__": lambda self, *args, **kwargs: type(self)._link.call(self, args, kwargs),
    "__contains__": _contains,
    "__getitem__": _asking("item"),
    "__exit__": _exit,
    **{f"__{n}__": _asking(n) for n in ("iter", "next", "setitem", "delitem", "enter", "reversed")},
    **{f"__{k.__name__}__": _number(k.__name__, k) for k in (bool, int, float, complex)},
    "__len__": _number("len", int),
    "__index__": _number("index", int),
    "__round__": _number("round"),
    **{f"__{n}__": _number(n) for n in ("abs", "neg", "pos", "invert")},
    **{f"__{n}__": _ordered(n) for n in ("lt", "le", "gt", "ge")},
}
for _name in ARITHMETIC:
    SPECIAL |= {f"__{_name}__": _between(_name), f"__r{_name}__": _between(_name, True)}
    SPECIAL[f"__i{_name}__"] = _between("i" + _name)


def _of_plain(name: str, plain: type) -> Callable[..., Any]:
    """An operator that the solution's kind of a plain value has of its own: the test leans on it if it made the object."""
    own = getattr(plain, name, None)

    def ask(self: Value, *others: object) -> Any:
        if self.__dict__.get("_is_made"):
            raise Untrusted(type(self)._link, name)
        return own(self, *others) if own is not None else NotImplemented

    return ask


OPERATORS = frozenset(SPECIAL) - {f"__{n}__" for n in "call iter next enter exit len bool".split()} | {"__eq__"}  # noqa: SIM905
"""Operators of a kind of plain value that would be the plain type's own here."""


def class_for(link: Value, about: dict[str, Any], bases: tuple[type, ...], plain: type | None) -> Any:
    """The class here for a described class of the solution; `plain` is the immutable plain type that it is a kind of."""
    name = about["t"]
    body: dict[str, Any] = {"__module__": "solution", "_number": about["n"], "_link": link, "_is_named": False}
    body |= {"_methods": frozenset(about["m"]), "_is_enum": "u" in about, "_plain": about.get("p")}
    body |= {"_has_order": bool(about.get("o")), "_has_equality": bool(about.get("q"))}
    body |= {"_compared": about.get("f"), "_init": about.get("i")}
    body["__doc__"] = property(lambda self: link.operate("get", self, "__doc__"))
    if plain is not None:
        body |= {n: property(functools.partial(BoundMethod, name=n)) for n in about["m"]}
        body |= {"__str__": Proxy.__str__, "__repr__": Proxy.__repr__, "__format__": Proxy.__format__}
        body |= {n: _of_plain(n, plain) for n in about.get("x", ()) if n in OPERATORS}
        return ProxyMeta(name, (*(b for b in bases if issubclass(b, plain)), PlainProxy, plain), body)
    body |= {"__slots__": ()}
    if "a" in about:  # for `dataclasses.asdict` and its like
        plain_twin: Any = dataclasses.make_dataclass(name, about["a"])
        body["__dataclass_fields__"] = plain_twin.__dataclass_fields__
        body["__match_args__"] = tuple(about["i"])
    body |= {n: SPECIAL[n] for n in about["d"] if n in SPECIAL}
    like = LIKE.get(about.get("p") or name)
    if like is not None:
        body["__class__"] = property(lambda self: like)
        if like is types.FunctionType:  # as a method of a class of the test
            body["__get__"] = lambda self, its, owner=None: self if its is None else types.MethodType(self, its)
    return ProxyMeta(name, (*bases, *(() if bases else (Proxy,))), body)
