"""Classes that stand for the solution's in the test program, made from what its side tells of them, once.

Enumerations and named tuples are made as real ones, so that their values compare as the test's own; all others give handles.
"""

from __future__ import annotations

import enum
import importlib
import types
import typing
from typing import Any

from .. import wire
from ..wire import Value
from .ends import Connection
from .handles import (
    ABILITIES,
    GENERATOR,
    KINDS,
    TRUSTED,
    DocText,
    Handle,
    HandleMeta,
    function_local,
    make,
    stub,
    text,
)
from .records import data_body

ENUMS: dict[str, Any] = {
    e.__name__: e for e in (enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag, enum.IntFlag)
}
# classes only, of modules where none compares equal to what it is not
CLASSES_OF = frozenset(
    [
        "builtins",
        "collections",
        "collections.abc",
        "datetime",
        "decimal",
        "fractions",
        "enum",
        "abc",
        "typing",
        "types",
        "pathlib",
        "uuid",
        "threading",
        "asyncio",
        "io",
        "functools",
        "itertools",
        "re",
        "random",
        "string",
        "queue",
        "numbers",
        "contextlib",
        "dataclasses",
        "array",
        "json",
        "math",
        "time",
    ]
)


class Mirrors:
    """The classes by their numbers."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.classes: dict[int, Any] = {}
        self.natives: dict[type, int] = {}
        self.about: dict[type, Any] = {}
        self.coroutines: dict[int, int] = {}
        self.kept: dict[int, Any] = {}

    def cls(self, about: Value) -> Any:
        """The class of a description, or of a number that has been described."""
        number = about["n"]
        if type(number) is not int:
            raise wire.BadWire("no number")
        found = self.classes.get(number)
        if found is not None:
            return found
        maker = {"exception": self.link.raiser.cls, "enum": self._enum, "named": self._tuple}.get(
            about.get("kind", "")
        )
        made: Any = maker(about) if maker is not None else self._class(about)
        self.classes[number] = made
        self.about[made] = about
        return made

    def _class(self, about: Value) -> Any:
        parents = tuple(p for p in (self.cls(b) for b in about["b"]) if type(p) is HandleMeta)
        able = dict(ABILITIES)
        if self.link.trusted:
            able |= TRUSTED
        names = [*about["p"], *(TRUSTED if self.link.trusted else ())]
        body: dict[str, Any] = {n: able[n] for n in names if n in able}
        for name, doc in about["m"]:
            if not name.startswith("__") or name == "__init__":
                body[text(name)] = stub(self.link, about["n"], name, doc if type(doc) is str else None)
        body |= {
            "__slots__": (),
            "__module__": "solution",
            "__qualname__": text(about["q"])[:200],
            "__doc__": DocText(about["d"]),
            "_class_link": self.link,
            "_class_number": about["n"],
        }
        if "a" in about:
            body["__annotations__"] = {text(k): self.link.decode(v) for k, v in about["a"].items()}
        if tuple(about.get("s", ())) in KINDS:
            kind = KINDS[tuple(about["s"])]
            body["__class__"] = property(lambda self: kind)
            if kind is types.GeneratorType:
                body |= GENERATOR
        if about.get("kind") == "data":
            body |= data_body(self.link, about)
        return _made(text(about["t"])[:200], parents or (Handle,), body)

    def _enum(self, about: Value) -> Any:
        members = [(text(n), wire.decode(v)) for n, v in about["members"]]
        made: Any = ENUMS[about["base"]](text(about["t"]), members, module="solution")
        return self._native(made, about)

    def _tuple(self, about: Value) -> Any:
        import collections

        names = [text(n) for n in about["fields"]]
        made: Any = collections.namedtuple(text(about["t"]), names, rename=True, module="solution")  # type: ignore[misc]
        defaults = {n: self.link.decode(v) for n, v in about["defaults"]}
        if defaults:
            made.__new__.__defaults__ = tuple(defaults[n] for n in names if n in defaults)
            made._field_defaults = defaults
        return self._native(made, about)

    def _native(self, made: Value, about: Value) -> Any:
        """Give a real class the solution's methods and properties; special ones stay its own."""
        self.link.native = True
        self.natives[made] = about["n"]
        if type(about["d"]) is str:
            made.__doc__ = about["d"]
        for name, doc in about["m"]:
            if not name.startswith("_") and not hasattr(made, name):
                setattr(
                    made, name, stub(self.link, about["n"], text(name), doc if type(doc) is str else None)
                )
        for name in about["r"]:
            if not text(name).startswith("_") and not hasattr(made, name):
                asked = lambda self, name=name: self_link(made).ask("get", link_encode(made, self), name)  # noqa: E731
                setattr(made, name, property(asked))
        _LINKS[made] = self.link
        return made

    def member(self, body: Value) -> Any:
        """A member of an enumeration."""
        return self.cls(body[0])[body[1]]

    def named(self, body: Value) -> Any:
        """A named tuple of the solution's class."""
        return self.cls(body[0])(*[self.link.decode(v) for v in body[1]])

    def standard(self, body: Value) -> Any:
        """A class of the standard library, by name."""
        module, name = body
        if module not in CLASSES_OF:
            raise wire.BadWire("not a class that may be named")
        found: Any = importlib.import_module(module)
        for part in text(name).split("."):
            found = getattr(found, part)
        if not isinstance(found, type):
            raise wire.BadWire("no class")
        return found

    def alias(self, body: Value) -> Any:
        """`list[int]` and the like."""
        name, given = body
        args = tuple(self.link.decode(a) for a in given)
        if name == "|":
            return typing.Union[args]  # noqa: UP007 - of arguments known at run time
        if name in ("Any", "Union"):
            return typing.Any if name == "Any" else typing.Union[args]  # noqa: UP007
        if text(name).startswith("typing."):
            found = getattr(typing, name[7:])
            return found[args] if args else found
        return types.GenericAlias(self.standard(["builtins", name]), args)

    def handle(self, about: Value) -> Any:
        """The handle of a number; what is told of one that is known already is not listened to."""
        number = about["n"]
        found = self.link.handles.get(number)
        if found is None:
            cls = self.cls(about["c"])
            if type(cls) is not HandleMeta:
                raise wire.BadWire("no class of handles")
            fields = [self.link.decode(v) for v in about["v"]] if "v" in about else None
            local = function_local(self.link, about["f"]) if "f" in about else {}
            found = self.link.handles[number] = make(cls, self.link, number, fields, local)
        return found

    def coroutine(self, body: Value) -> Any:
        """A coroutine that drives one of the solution."""
        number, name, qualname = body
        found: Any = self.kept.get(number)
        if found is None:
            found = _drive(self.link, number)
            found.__name__, found.__qualname__ = text(name), text(qualname)
            self.kept[number] = found
            self.coroutines[id(found)] = number
        return found

    def abilities(self, cls: type) -> frozenset[str]:
        """The special methods of a class and of its bases."""
        return frozenset(p for c in type.mro(cls) if c in self.about for p in self.about[c]["p"])

    def field_place(self, cls: type, name: str) -> int | None:
        """The place of a field of a dataclass."""
        fields = list(getattr(cls, "__dataclass_fields__", {}))
        return fields.index(name) if name in fields else None

    def derive(self, meta: Value, name: str, parents: tuple[type, ...], space: dict[str, Any]) -> Any:
        """A class of the test below the solution's: its methods stay here, its data goes there."""
        members = []
        kept: dict[str, Any] = {}
        for key, value in space.items():
            how = {staticmethod: "static", classmethod: "class", property: "property"}.get(type(value), "")
            if isinstance(value, types.FunctionType):
                members.append([key, "function", self.link.encode(value)])
                kept[key] = value
            elif how == "property":
                members.append([key, how, self.link.encode(value.fget)])
                kept[key] = value
            elif how or key in ("__module__", "__qualname__", "__doc__", "__classcell__", "__slots__"):
                kept[key] = value
            elif not key.startswith("__"):
                members.append([key, "value", self.link.encode(value)])
        given = [{"k": vars(p)["_class_number"]} for p in parents if "_class_number" in vars(p)]
        number = self.link.ask("subclass", name, given, members)
        if type(number) is not int or number in self.classes:
            raise wire.BadWire("no class")
        kept.pop("__slots__", None)
        kept |= {"_class_number": number, "_class_link": self.link, "__slots__": ()}
        made = type.__new__(meta, name, parents, kept)
        self.classes[number] = made
        self.about[made] = {"p": [], "n": number}
        return made


_LINKS: dict[type, Any] = {}


def self_link(cls: type) -> Any:
    """The connection of a real class that stands for one of the solution's."""
    return _LINKS[cls]


def link_encode(cls: type, value: Value) -> Any:
    """A value of such a class as the solution gets it."""
    return _LINKS[cls].encode(value)


def _made(name: str, parents: tuple[Any, ...], body: dict[str, Any]) -> Any:
    try:
        return HandleMeta(name, parents, body)
    except TypeError:  # an order of bases that Python refuses: the solution's side has told a tale
        raise wire.BadWire("bad bases") from None


async def _drive(link: Value, number: int) -> Any:
    import asyncio  # large, and whoever drives a coroutine has it

    try:
        while True:
            found = link.ask("costep", {"k": number})
            if found[0]:
                return found[1]
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        link.ask("cocancel", {"k": number})
        raise
