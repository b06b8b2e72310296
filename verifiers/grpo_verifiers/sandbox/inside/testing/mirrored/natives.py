"""Classes of the solution that are made here as real ones: enumerations, named tuples, kinds of plain values.

Their objects compare, hash, count and are walked as the plain value they hold; other methods are the solution's.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from typing import Any

from ... import wire
from ...wire import Fields
from ..ends import Connection
from .handles import DerivingMeta, stub, text

ENUMS: dict[str, Any] = {e.__name__: e for e in (enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag, enum.IntFlag)}

BASES: dict[str, Any] = {b.__name__: b for b in (str, list, dict, int, float, tuple, set, bytes)}
KIN: dict[str, Any] = {b.__name__: b for b in (collections.Counter, collections.OrderedDict, collections.defaultdict)}
DECIDING = """
__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __add__ __sub__ __mul__ __truediv__ __floordiv__ __mod__ __pow__ __and__ __or__
__xor__ __contains__
""".split()  # noqa: SIM905
ASKED = {
    "__getitem__": "item",
    "__setitem__": "setitem",
    "__delitem__": "delitem",
    "__missing__": "item",
    "__enter__": "enter",
}


class Member:
    """A property, class method or static method of a class of the solution."""

    def __init__(self, link: Connection, number: int, name: str, is_property: bool) -> None:
        self.link, self.number, self.name, self.is_property = link, number, name, is_property

    def __get__(self, instance: object, owner: object) -> Any:
        if self.is_property and instance is not None:
            return self.link.ask("get", self.link.encode(instance), self.name)
        return self.link.ask("get", {"k": self.number}, self.name)


class PlainMeta(DerivingMeta):
    """The class of these classes: calling one makes an object there."""

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        return vars(cls)["_class_link"].construct(cls, args, kwargs)


def plain_class(link: Connection, about: Fields, parents: tuple[type, ...]) -> Any:
    """The class of a description, below the plain type or other such classes."""
    base, kin = BASES[about["base"]], KIN.get(text(about.get("kin") or ""))
    if kin is not None and base is not dict:
        raise wire.BadWire("a dictionary that is none")
    parents = tuple(kin if p is base and kin is not None else p for p in parents)

    def get(self: object, name: str) -> Any:
        if name.startswith("__") or "_number" not in vars(self):
            raise AttributeError(name)
        return link.ask("get", {"k": vars(self)["_number"]}, name)

    def put(self: object, name: str, value: object) -> None:
        link.ask("set", {"k": vars(self)["_number"]}, name, link.encode(value))

    body: dict[str, Any] = {
        "__module__": "solution",
        "__qualname__": str(about["q"])[:200],
        "__getattr__": get,
        "__setattr__": put,
        "__hash__": base.__hash__,
        "_base": base,
        "_kin": kin or base,
        "_class_link": link,
        "_class_number": about["n"],
    }
    names = {m[0] for m in about["m"]}
    for name, doc in about["m"]:
        if not name.startswith("_"):
            body[name] = stub(link, about["n"], name, doc if type(doc) is str else None)
    for name in names & set(ASKED):
        body[name] = _asking(link, ASKED[name])
    for name in names & {"__str__", "__repr__"}:
        body[name] = _asking(link, name.strip("_"), str)
    if kin is collections.defaultdict:
        body["__missing__"] = _made_there(link)
    if "__call__" in names:
        body["__call__"] = lambda self, *args, **kwargs: link.call(vars(self)["_number"], args, kwargs)
    for name in names & set(DECIDING):
        body[name] = _doubted(link, getattr(kin or base, name, None))
    return PlainMeta(str(about["t"])[:200], parents, body)


def _asking(link: Connection, operation: str, kind: type | None = None) -> Any:
    def ask(self: object, *others: object) -> Any:
        found = link.ask(operation, {"k": vars(self)["_number"]}, *[link.encode(o) for o in others])
        if kind is not None and type(found) is not kind:
            raise TypeError(f"no {kind.__name__}")
        return found

    return ask


def _made_there(link: Connection) -> Any:
    """What a `defaultdict` of the solution makes for a key stands in it from then on, as that very object."""

    def ask(self: dict[Any, Any], key: object) -> Any:
        found = link.ask("item", {"k": vars(self)["_number"]}, link.encode(key))
        if dict.__contains__(self, key):
            dict.__setitem__(self, key, found)
        return found

    return ask


def _doubted(link: Connection, plain: Callable[..., Any] | None) -> Any:
    """What the solution's class would decide, decided by the plain value."""

    def decide(self: object, *others: object) -> Any:
        link.untrusted = True
        return NotImplemented if plain is None else plain(self, *others)

    return decide


def plain_value(cls: type[Any], number: int, value: object) -> Any:
    """An object of such a class, without asking anybody."""
    base = vars(cls)["_base"]
    made = vars(cls)["_kin"].__new__(cls) if base in (list, dict, set) else base.__new__(cls, value)
    vars(made)["_number"] = number
    return made


def enum_class(link: Connection, about: Fields) -> Any:
    """The enumeration of a description."""
    members = [(text(n), wire.decode(v)) for n, v in about["members"]]
    name, boundary = about["base"], about.get("boundary")
    options = {} if boundary is None else {"boundary": enum.FlagBoundary[text(boundary)]}
    made: Any = ENUMS[name](text(about["t"]), members, module="solution", **options)

    def get(self: object, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return link.ask("get", link.encode(self), name)

    made.__getattr__ = get
    return made


def tuple_class(link: Connection, about: Fields) -> Any:
    """The named tuple of a description."""
    names = [text(n) for n in about["fields"]]
    made: Any = collections.namedtuple(text(about["t"]), names, rename=True, module="solution")  # type: ignore[misc]
    defaults = {n: link.decode(v) for n, v in about["defaults"]}
    if defaults:
        made.__new__.__defaults__ = tuple(defaults[n] for n in names if n in defaults)
        made._field_defaults = defaults
    return made


def add_members(link: Connection, made: object, about: Fields) -> None:
    """Methods, properties and the like; those that the class has itself stay."""
    if type(about["d"]) is str:
        made.__doc__ = about["d"]
    for name, doc in about["m"]:
        if not name.startswith("_") and not hasattr(made, name):
            setattr(made, name, stub(link, about["n"], text(name), doc if type(doc) is str else None))
    for name, is_property in about["r"]:
        if not text(name).startswith("_") and not hasattr(made, name):
            setattr(made, name, Member(link, about["n"], name, bool(is_property)))
