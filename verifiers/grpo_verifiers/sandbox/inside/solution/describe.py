"""How the solution's side tells of what is no plain value: the class once, with what its objects can do, then by number.

Nothing here is trusted; the test program's side takes from it what cannot hurt.
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
import enum
import inspect
import sys
import types
import typing
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from .. import standard, wire
from ..writing import items_of
from .ends import PeerEnd
from .notes import alias, note, notes
from .told import ToldClasses

PROTOCOLS = """
__call__ __iter__ __next__ __len__ __contains__ __getitem__ __setitem__ __delitem__ __enter__ __exit__ __aiter__ __anext__
__aenter__ __aexit__ __await__ __bool__ __reversed__ __index__ __int__ __float__ __round__ __abs__ __neg__ __pos__ __invert__
__add__ __sub__ __mul__ __truediv__ __floordiv__ __mod__ __pow__ __matmul__ __and__ __or__ __xor__
__radd__ __rsub__ __rmul__ __rtruediv__ __rfloordiv__ __rmod__ __rpow__ __rmatmul__ __rand__ __ror__ __rxor__
__eq__ __lt__ __le__ __gt__ __ge__ __get__ __set__ __delete__ __set_name__
""".split()  # noqa: SIM905
FLAGS = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
ORDER = ("__eq__", "__lt__", "__le__", "__gt__", "__ge__")
PLAIN_BASES = (str, list, dict, int, float, tuple, set, bytes)
LIBRARY_KINDS = (Counter, OrderedDict, defaultdict)
ENUM_BASES = (enum.IntFlag, enum.Flag, enum.IntEnum, enum.StrEnum, enum.Enum)
ATTRIBUTES = (
    *("errno", "strerror", "filename", "filename2", "msg", "doc", "pos", "lineno", "colno", "name", "obj", "path"),
    *("start", "end", "reason", "object", "encoding", "value", "code", "text", "offset"),
)


class Describer:
    """Makes the messages; each class is described once in a part of a message, and no more once that has been sent."""

    def __init__(self, peer: PeerEnd) -> None:
        self.peer, self.told = peer, ToldClasses()

    def is_own(self, kind: type) -> bool:
        """Whether a class is one that the solution (or its own code) defines."""
        return kind.__module__ in ("solution", "__main__") or standard_name(kind) is None

    def value(self, value: object, kind: type) -> Any:
        """The message for an object of a subclass of a plain type that keeps its class; None for all others."""
        if isinstance(value, type) or not self.is_own(kind):
            return None
        if isinstance(value, enum.Enum):
            about = self.cls(kind)
            if about.get("kind", "enum") != "enum":
                return None
            # `READ | WRITE` is no member, whatever it is called
            if value.name not in vars(kind)["_member_map_"]:
                return {"fl": [about, int.__index__(value.value)]} if issubclass(kind, enum.Flag) else None
            return {"en": [about, value.name]}
        if isinstance(value, tuple) and _is_named(kind):
            return {"nt": [self.cls(kind), [self.peer.encode(v) for v in tuple.__iter__(value)]]}
        base = plain_base(kind)
        if base is not None and (about := self.cls(kind)).get("kind", "plain") == "plain":
            return {"np": [self.peer.number(value), about, self.peer.kept.own(value)]}
        return None

    def other(self, value: object, kind: type) -> Any:
        """The message for what is no plain value."""
        if isinstance(value, type):
            name = standard_name(value)
            return {"g": name} if name is not None and _is_found(value, *name) else {"hc": self.cls(value)}
        made = self.value(value, kind)
        if made is not None:
            return made
        if isinstance(value, BaseException):
            return {"x": self.exception(value)}
        if isinstance(value, types.CoroutineType | types.GeneratorType):
            tag = "co" if isinstance(value, types.CoroutineType) else "ge"
            return {tag: [self.peer.number(value), value.__name__, value.__qualname__]}
        hint = _hint(value, self.peer)
        if hint is not None:
            return hint
        about: dict[str, Any] = {"n": self.peer.number(value), "c": self.cls(kind)}
        if type(getattr(value, "__name__", None)) is str and callable(value):
            about["f"] = self._function(value)
        fields = self.fields(value)
        if fields is not None:
            about["v"] = fields
        return {"h": about}

    def cls(self, kind: type) -> dict[str, Any]:
        """A class: its number, and the first time all about it. One that stands for a class of the test: that one's number."""
        if id(kind) in self.peer.back:
            return dict(self.peer.back[id(kind)])
        number = self.peer.number(kind)
        if not self.told.add(number):
            return {"n": number}
        own = self.is_own(kind)
        names: Any = vars(kind) if own else [n for n in dir(kind) if n not in ORDER]
        about: dict[str, Any] = {
            "n": number,
            "t": kind.__name__,
            "q": kind.__qualname__,
            "d": kind.__doc__ if type(kind.__doc__) is str and own else None,
            "p": [p for p in PROTOCOLS if p in names and (not own or names[p] is not None)],
            "b": [self.cls(b) for b in kind.__bases__ if standard_name(b) is None] if own else [],
            "m": [[n, _doc(f)] for n, f in vars(kind).items() if isinstance(f, types.FunctionType)] if own else [],
        }
        if not own:
            about["s"] = standard_name(kind)
        if own:
            about["a"] = [[k, self.peer.encode(v)] for k, v in notes(kind, False).items()]
        if isinstance(kind, abc.ABCMeta) and own:
            about["abstract"] = sorted(kind.__abstractmethods__)
        if issubclass(kind, BaseException):
            return {**about, "kind": "exception", "e": bases(kind), "r": _members(kind)}
        if issubclass(kind, enum.Enum) and own:
            return {**about, **_enumeration(kind)}
        if issubclass(kind, tuple) and _is_named(kind):
            given: Any = kind
            defaults = [[k, self.peer.encode(v)] for k, v in given._field_defaults.items()]
            return {**about, "kind": "named", "fields": list(given._fields), "defaults": defaults, "r": _members(kind)}
        if dataclasses.is_dataclass(kind) and own:
            return {**about, **self._dataclass(kind)}
        if own and (base := plain_base(kind)) is not None:
            return {**about, "kind": "plain", "base": base.__name__, "kin": _kin(kind), "r": _members(kind)}
        return about

    def _dataclass(self, kind: type[Any]) -> dict[str, Any]:
        made = []
        for f in dataclasses.fields(kind):
            default = f.default if f.default is not dataclasses.MISSING else None
            if f.default_factory is not dataclasses.MISSING:
                default = f.default_factory()
            has = f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
            made.append(
                [
                    f.name,
                    self.peer.encode(note(f.type, False)),
                    has,
                    self.peer.encode(default),
                    f.init,
                    f.kw_only,
                    f.compare,
                ]
            )
        params = kind.__dataclass_params__
        plain = params.init and params.eq and "__post_init__" not in dir(kind)
        return {
            "kind": "data",
            "fields": made,
            "frozen": params.frozen,
            "order": params.order,
            "plain": bool(plain),
            "equal": bool(params.eq),
            "hashed": bool(params.eq and (params.frozen or params.unsafe_hash)),
        }

    def fields(self, value: object) -> list[Any] | None:
        """The values of a dataclass object's fields, as they are now."""
        kind: type[Any] = type(value)
        if isinstance(value, type) or not self.is_own(kind) or "__dataclass_fields__" not in dir(kind):
            return None
        if isinstance(value, BaseException):
            return None
        try:
            with self.told.part():
                return [self.peer.encode(getattr(value, f.name)) for f in dataclasses.fields(kind)]
        except (AttributeError, RecursionError):
            return None

    def _function(self, value: Callable[..., Any]) -> dict[str, Any]:
        return {
            "name": value.__name__,
            "qualname": str(getattr(value, "__qualname__", value.__name__)),
            "doc": _doc(value),
            "flags": getattr(getattr(value, "__code__", None), "co_flags", 0) & FLAGS,
        }

    def exception(self, err: BaseException, depth: int = 0) -> dict[str, Any]:
        """An exception: its class, arguments, attributes, text, notes, cause."""
        kind = type(err)
        if id(err) in self.peer.back:
            return dict(self.peer.back[id(err)])
        about: dict[str, Any] = {"e": bases(kind), "t": kind.__name__}
        if standard_name(kind) is None:
            about["c"] = self.cls(kind)
            about["n"] = self.peer.number(err)
        try:
            # past a property of that name in the solution's own class
            with self.told.part():
                about["args"] = [self.peer.encode(a) for a in BaseException.__getattribute__(err, "args")]
        except (RecursionError, TypeError, MemoryError):
            about["args"] = []
        given = dict(vars(err)) if "n" not in about else {}
        given |= {a: getattr(err, a) for a in ATTRIBUTES if a not in given and hasattr(err, a)}
        try:
            with self.told.part():
                about["a"] = [[k, self.peer.encode(v)] for k, v in given.items() if v is not err and k != "__notes__"]
            if kind.__str__ not in (BaseException.__str__, Exception.__str__):
                about["s"] = str(err)
        except Exception:  # noqa: BLE001 - its text or an attribute fails: it goes without
            about.setdefault("a", [])
        about["notes"] = [str(n) for n in getattr(err, "__notes__", ())]
        # a chain of causes may be a ring
        if depth < 4:
            if err.__cause__ is not None:
                about["cause"] = self.exception(err.__cause__, depth + 1)
            elif err.__context__ is not None and err.__context__ is not err:
                about["context"] = self.exception(err.__context__, depth + 1)
        return about


def _enumeration(kind: type[enum.Enum]) -> dict[str, Any]:
    try:
        members = [[name, wire.encode(m.value)] for name, m in kind.__members__.items()]
    except wire.NotPlain:
        return {}
    base = next(b.__name__ for b in ENUM_BASES if issubclass(kind, b))
    boundary = vars(kind)["_boundary_"].name if issubclass(kind, enum.Flag) else None
    return {"kind": "enum", "base": base, "members": members, "r": _members(kind), "boundary": boundary}


def standard_name(kind: type) -> list[str] | None:
    """Module and name of a class of the standard library, of numpy and the like; None for any other."""
    module = kind.__module__
    if module in ("solution", "__main__") or type(module) is not str:
        return None
    if module.split(".")[0] not in sys.stdlib_module_names and "." not in module and module not in sys.modules:
        return None
    found: Any = sys.modules.get(module)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    # a class may carry any module and name: it must be the very object that stands there
    if found is kind:
        return [module, kind.__qualname__]
    # generators, functions and iterators have classes that no module names
    return ["builtins", kind.__qualname__] if module == "builtins" else None


def _is_found(kind: type, module: str, name: str) -> bool:
    """Whether the other side finds a class by this name, and takes it: `type({}.keys())` stands nowhere."""
    if module == "builtins":
        return standard.UNNAMED.get(name, getattr(builtins, name, None)) is kind
    return module in standard.CLASSES_OF


def bases(kind: type) -> list[str]:
    """The names of an exception class's standard ancestors, nearest first."""
    return [".".join(name) for c in kind.__mro__ if (name := standard_name(c)) is not None]


def _is_named(kind: object) -> bool:
    fields = getattr(kind, "_fields", None)
    return isinstance(fields, tuple) and all(type(f) is str for f in fields) and hasattr(kind, "_make")


def _members(kind: type) -> list[list[Any]]:
    """Names of properties and of methods of the class, and which of the two."""
    ways = (property, classmethod, staticmethod)
    found = [[n, isinstance(f, property)] for n, f in vars(kind).items() if isinstance(f, ways)]
    return [f for f in found if not str(f[0]).startswith("_")]


def plain_base(kind: type) -> type | None:
    """The plain type that a class of the solution is a kind of."""
    # these have messages of their own
    if issubclass(kind, enum.Enum | BaseException):
        return None
    return next((b for b in kind.__mro__ if b in PLAIN_BASES), None)


def _kin(kind: type) -> str | None:
    """The name of the library's dictionary that a class is a kind of."""
    return next((b.__name__ for b in kind.__mro__ if b in LIBRARY_KINDS), None)


def plain_content(value: Any, base: type) -> Any:
    """The plain value in an object of a subclass, read by the base's own methods."""
    if base in (list, tuple, set):
        return base(base.__iter__(value))
    if base is dict:
        return dict(items_of(value))
    own: dict[type, Any] = {int: int.__int__, float: float.__float__, str: str.__str__}
    return own[base](value) if base in own else bytes.__getitem__(value, slice(None))


def _doc(value: object) -> str | None:
    text = getattr(value, "__doc__", None)
    return text if type(text) is str else None


def _hint(value: object, peer: PeerEnd) -> dict[str, Any] | None:
    """The message for a type hint; None for anything else."""
    if type(value) is typing.TypeVar:
        return _variable(value, peer)
    found = alias(value)
    return None if found is None else {"ga": [found[0], [peer.encode(a) for a in found[1]]]}


def _variable(value: typing.TypeVar, peer: PeerEnd) -> dict[str, Any]:
    """A type variable: its name, bound, constraints, and in which directions it varies."""
    constraints = [peer.encode(c) for c in value.__constraints__]
    ways = [value.__covariant__, value.__contravariant__]
    return {"tv": [peer.number(value), value.__name__, peer.encode(value.__bound__), constraints, ways]}
