"""Classes that stand for the solution's in the test program, made from what its side tells of them, once.

Enumerations and named tuples are made as real ones, so that their values compare as the test's own; all others give handles.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable
from typing import Any

from ... import wire
from ...standard import CLASSES_OF, UNNAMED
from ...wire import Fields, Parts
from ..ends import Connection
from .abilities import ABILITIES, KINDS, TRUSTED
from .driving import drive, generate
from .functions import asked_local, function_local
from .handles import DocText, Handle, HandleMeta, abstract_names, derived, make, stub, text
from .natives import BASES, PlainMeta, add_members, enum_class, plain_class, plain_value, tuple_class
from .records import data_body
from .subclassing import beside, parted


class Mirrors:
    """The classes by their numbers."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.classes: dict[int, Any] = {}
        self.natives: dict[type, int] = {}
        self.about: dict[type, Any] = {}
        self.driven: dict[int, int] = {}
        self.kept: dict[int, Any] = {}

    def cls(self, about: Fields) -> Any:
        """The class of a description or of a number (BadWire: it is none) that was described; or one of the test's own."""
        if "tc" in about:
            return self.link.lender.lent_class(about["tc"])
        number = about["n"]
        if type(number) is not int:
            raise wire.BadWire("no number")
        found = self.classes.get(number)
        if found is not None:
            return found
        makers = {"exception": self.link.raiser.cls} | dict.fromkeys(("enum", "named", "plain"), self._native)
        made: Any = makers.get(about.get("kind", ""), self._class)(about)
        self.classes[number] = made
        self.about[made] = about
        return made

    def _class(self, about: Fields) -> Any:
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
        if about.get("a"):
            body["__annotations__"] = {text(k): self.link.decode(v) for k, v in about["a"]}
        if tuple(about.get("s", ())) in KINDS:
            kind = KINDS[tuple(about["s"])]
            body["__class__"] = property(lambda self: kind)
        if about.get("kind") == "data":
            body |= data_body(self.link, about)
        made = _made(text(about["t"])[:200], parents or (Handle,), body)
        if "abstract" in about:
            made.__abstractmethods__ = frozenset(map(text, about["abstract"]))
        return made

    def _native(self, about: Fields) -> Any:
        """A real class with the solution's methods and properties; special ones stay its own."""
        made = {"enum": enum_class, "named": tuple_class, "plain": self._plain}[about["kind"]](self.link, about)
        self.link.native = True
        self.natives[made] = about["n"]
        add_members(self.link, made, about)
        return made

    def _plain(self, link: Connection, about: Fields) -> Any:
        base = BASES[about["base"]]
        parents = [p for p in map(self.cls, about["b"]) if issubclass(p, base)]
        return plain_class(link, about, tuple(parents) or (base,))

    def member(self, body: Parts) -> Any:
        """A member of an enumeration."""
        return self.cls(body[0])[body[1]]

    def flags(self, body: Parts) -> Any:
        """Flags that are no single member.

        Raises:
            BadWire: their class is none of flags, or their value no number.
        """
        cls = self.cls(body[0])
        if not (isinstance(cls, type) and issubclass(cls, enum.Flag)) or type(body[1]) is not int:
            raise wire.BadWire("no flags")
        return cls(body[1])

    def named(self, body: Parts) -> Any:
        """A named tuple of the solution's class."""
        return self.cls(body[0])(*[self.link.decode(v) for v in body[1]])

    def standard(self, body: Parts) -> Any:
        """A class of a library, by name; raises BadWire for one of a module that may not be named."""
        return _named_class(body[0], text(body[1]))

    def handle(self, about: Fields) -> Any:
        """The handle of a number; what is told of one that is known already is not listened to.

        Raises:
            BadWire: its class is none of handles, or it has other fields than its class.
        """
        number = about["n"]
        found = self.link.handles.get(number)
        if found is None:
            cls = self.cls(about["c"])
            if type(cls) is not HandleMeta:
                raise wire.BadWire("no class of handles")
            fields = [self.link.decode(v) for v in about["v"]] if "v" in about else None
            if fields is not None and len(fields) != len(getattr(cls, "__dataclass_fields__", ())):
                raise wire.BadWire("not the fields of its class")
            local = function_local(about["f"]) if "f" in about else {}
            found = self.link.handles[number] = make(cls, self.link, number, fields, local)
        return derived(found, "")

    def sign(self, handle: Handle) -> None:
        """Ask for the signature of a function."""
        handle._local.update(asked_local(self.link, handle._number, handle._local))

    def plain(self, body: Parts) -> Any:
        """An object that is a kind of plain value: the same one for a number, with what is in it now.

        Raises:
            BadWire: the value is not of the class's kind, or the number had another class before.
        """
        number, about, content = body
        cls, value = self.cls(about), self.link.decode(content)
        if type(cls) is not PlainMeta or not isinstance(value, vars(cls)["_base"]):
            raise wire.BadWire("no such value")
        found = self.kept.get(number)
        if found is None:
            found = self.kept[number] = plain_value(cls, number, value)
            self.driven[id(found)] = number
        elif type(found) is not cls:
            raise wire.BadWire("another class")
        if isinstance(found, list | dict | set):
            self.link.live.own(number, found, value)
        return found

    def coroutine(self, body: Parts) -> Any:
        """A coroutine that drives one of the solution."""
        return self._driven(body, drive)

    def generator(self, body: Parts) -> Any:
        """A generator that drives one of the solution."""
        return self._driven(body, generate)

    def _driven(self, body: Parts, maker: Callable[[Connection, int], Any]) -> Any:
        number, name, qualname = body
        found: Any = self.kept.get(number)
        if found is None:
            found = maker(self.link, number)
            found.__name__, found.__qualname__ = text(name), text(qualname)
            self.kept[number] = found
            self.driven[id(found)] = number
        return found

    def abilities(self, cls: type) -> frozenset[str]:
        """The special methods of a class and of its bases."""
        return frozenset(p for c in type.mro(cls) if c in self.about for p in self.about[c]["p"])

    def field_place(self, cls: type, name: str) -> int | None:
        """The place of a field of a dataclass."""
        fields = list(getattr(cls, "__dataclass_fields__", {}))
        return fields.index(name) if name in fields else None

    def derive(
        self, meta: type[Any], name: str, parents: tuple[type, ...], space: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """A class of the test below the solution's: methods stay here, data goes there. BadWire: it got no new number."""
        members, kept = parted(self.link, space)
        number = self.link.ask(
            "subclass",
            name,
            [beside(self.link, p) for p in parents if p is not object],
            members,
            [[k, self.link.encode(v)] for k, v in options.items()],
        )
        if type(number) is not int or number in self.classes:
            raise wire.BadWire("no class")
        kept.pop("__slots__", None)
        kept |= {"_class_number": number, "_class_link": self.link, "__slots__": ()}
        made = type.__new__(meta, name, parents, kept)
        if (left := _left_abstract(parents, space)) is not None:
            made.__abstractmethods__ = left
        self.classes[number] = made
        self.about[made] = {"p": [], "n": number}
        if any(p in self.natives for p in parents):
            self.natives[made] = number
        return made


def _named_class(module: str, name: str) -> type:
    if module not in CLASSES_OF:
        raise wire.BadWire("not a class that may be named")
    if module == "builtins" and name in UNNAMED:
        return UNNAMED[name]
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
        # by way of a module that another one imports everything could be named
        if not isinstance(found, type):
            raise wire.BadWire("no class")
    made: type = found
    return made


def _left_abstract(parents: tuple[type, ...], space: dict[str, Any]) -> frozenset[str] | None:
    """The abstract methods of a class of the test below an abstract one of the solution; None where that one is none."""
    known = [names for p in parents if (names := abstract_names(p)) is not None]
    if not known:
        return None
    is_abstract = {k: getattr(v, "__isabstractmethod__", False) for k, v in space.items()}
    inherited = {n for names in known for n in names if n not in is_abstract}
    return frozenset(inherited | {k for k, flag in is_abstract.items() if flag})


def _made(name: str, parents: tuple[Any, ...], body: dict[str, Any]) -> Any:
    try:
        return HandleMeta(name, parents, body)
    except TypeError:  # an order of bases that Python refuses: the solution's side has told a tale
        raise wire.BadWire("bad bases") from None
