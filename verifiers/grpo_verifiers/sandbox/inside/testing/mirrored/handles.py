"""Handles: what of the solution is no plain value, as the test program sees it.

Every class of the solution has a class here that can do what the solution's can and no more, so that `isinstance`,
`callable` and `hasattr` give the honest answer. A handle never decides a comparison on the solution's word: `==` is
identity, and for dataclasses the fields as they were when the object was handed out.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Any

from ..ends import Connection

SLOTS = ("_link", "_number", "_fields", "_doubted", "_local", "_origin")
SIGNED = frozenset({"__annotations__", "__code__", "__signature__", "__defaults__", "__kwdefaults__"})
"""What of a function is asked for once a test looks at it: no annotation decides where none is looked at."""
MADE, MIXED = "made", "mixed"
"""Where a handle comes from: the test has made it itself, by its class or an operator on such objects, or by an operator
on one and a plain value. Anything else may stand where the test expects a plain value, and has no say in operators."""


def is_nameable(value: object) -> bool:
    """Whether a name of the solution may stand for it: under another name, these would catch a failed check of the test."""
    return not any(value is c for c in (AssertionError, Exception, BaseException))


class DerivingMeta(type):
    """The class of classes that stand for the solution's: one that the test derives from them is derived there too."""

    def __new__(mcs, name: str, parents: tuple[type, ...], space: dict[str, Any], /, **options: object) -> Any:
        link = next((vars(p)["_class_link"] for p in parents if "_class_number" in vars(p)), None)
        if link is None or "_class_number" in space:
            return super().__new__(mcs, name, parents, space)
        return link.derive(mcs, name, parents, space, options)

    def __init__(cls, name: str, parents: tuple[type, ...], space: dict[str, Any], /, **options: object) -> None:
        super().__init__(name, parents, space)


class HandleMeta(DerivingMeta):
    """The class of classes that stand for the solution's: calling one makes an object there."""

    _class_link: Connection
    _class_number: int

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        return cls._class_link.construct(cls, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if "_class_number" not in vars(cls) or name.startswith("__"):
            raise AttributeError(name)
        found = cls._class_link.ask("get", {"k": cls._class_number}, name)
        if not is_nameable(found):
            raise AttributeError(name)
        return found

    def __setattr__(cls, name: str, value: object) -> None:
        if not name.startswith("__"):
            cls._class_link.ask("set", {"k": cls._class_number}, name, cls._class_link.encode(value))
        if name.startswith("__") or name in vars(cls):
            super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        cls._class_link.ask("del", {"k": cls._class_number}, name)
        if name in vars(cls):
            super().__delattr__(name)

    @property  # type: ignore[misc]
    def __class__(cls) -> Any:
        """`isinstance(Shape, ABCMeta)` holds where it does there."""
        return abc.ABCMeta if abstract_names(cls) is not None else HandleMeta

    # hidden from the test program: what stands behind all handles
    __mro__ = property(lambda cls: tuple(c for c in type.mro(cls) if c is not Handle))
    __bases__ = property(
        lambda cls: tuple(object if c is Handle else c for c in type.__dict__["__bases__"].__get__(cls))
    )

    def __iter__(cls) -> Any:
        return walk(cls._class_link.ask("iter", {"k": cls._class_number}))

    def __getitem__(cls, key: object) -> Any:
        return cls  # Stack[int]


def abstract_names(cls: type) -> frozenset[str] | None:
    """The methods that are abstract yet in a class; None where it has no abstract base."""
    found = (vars(c)["__abstractmethods__"] for c in type.mro(cls) if "__abstractmethods__" in vars(c))
    return next(found, None)


class Handle(metaclass=HandleMeta):
    """Something of the solution that is no plain value. Without notes of types, which its functions would seem to have."""

    __slots__ = SLOTS

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Reached from a subclass in the test by `super().__init__()`: there is nothing to do."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name in SIGNED and "__name__" in self._local and "__signature__" not in self._local:
            self._link.mirrors.sign(self)
        if name in self._local:
            return self._local[name]
        if name.startswith("__") and name not in ("__dict__", "__wrapped__", "__self__", "__func__"):
            raise AttributeError(name)
        return self._link.ask("get", {"k": self._number}, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._link.ask("set", {"k": self._number}, name, self._link.encode(value))
        if self._fields is not None:
            self._link.set_field(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._link.ask("del", {"k": self._number}, name)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return self._link.ask("get", {"k": self._number}, "__dict__")

    def __eq__(self, other: object) -> Any:
        if self is other:
            return not self._doubted
        if isinstance(other, Handle):
            mine, others = compared_fields(self), compared_fields(other)
            if type(other) is type(self) and mine is not None and others is not None:
                return mine == others
            self._link.untrusted = True
        elif "__eq__" in self._link.abilities(type(self)):
            self._link.untrusted = True
        return NotImplemented

    def __hash__(self) -> int:
        return hash((id(self._link), self._number))

    def __str__(self) -> str:
        return text(self._link.ask("str", {"k": self._number}))

    def __repr__(self) -> str:
        return text(self._link.ask("repr", {"k": self._number}))

    def __format__(self, form: str) -> str:
        return text(self._link.ask("format", {"k": self._number}, form))

    def __copy__(self) -> Any:
        return self._link.ask("copy", {"k": self._number})

    def __deepcopy__(self, memo: object) -> Any:
        return self._link.ask("deepcopy", {"k": self._number})

    def __reduce_ex__(self, protocol: object) -> Any:
        return unpickled, (id(self._link), self._link.ask("pickled", {"k": self._number}))


def compared_fields(handle: object) -> list[Any] | None:
    """The values of the fields by which a dataclass object is compared; None where nothing is known of them."""
    compared = getattr(type(handle), "_compared", None)
    fields = handle._fields if isinstance(handle, Handle) else None
    return None if compared is None or fields is None else [fields[i] for i in compared]


LINKS: dict[int, Connection] = {}


def unpickled(link: int, data: bytes) -> Any:
    """An object that the solution's side makes from what it has pickled. For the test's own `pickle`."""
    return LINKS[link].ask("unpickled", LINKS[link].encode(data))


def make(cls: type, link: Connection, number: int, fields: list[Any] | None, local: dict[str, Any]) -> Handle:
    """A handle of a class, without asking anybody."""
    made: Handle = object.__new__(cls)
    for name, value in zip(SLOTS, (link, number, fields, False, local, ""), strict=True):
        object.__setattr__(made, name, value)
    return made


def derived(handle: object, origin: str) -> Any:
    """The same, with its origin noted where it is a handle."""
    if isinstance(handle, Handle):
        object.__setattr__(handle, "_origin", origin)
    return handle


def doubt(handle: Handle) -> None:
    """Never let it be equal to anything: it is not what the test asked for."""
    object.__setattr__(handle, "_doubted", True)
    object.__setattr__(handle, "_fields", None)


def walk(iterator: Iterator[Any]) -> Iterator[Any]:
    """The items of an iterator of the solution; also of the plain copy of one."""
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


def iterated(found: Handle | Iterator[Any]) -> Any:
    """What an object of the solution gave as its iterator: itself perhaps, and then it is that."""
    return found if isinstance(found, Handle) else walk(found)


def text(value: object) -> str:
    """A text, and nothing else."""
    if type(value) is not str:
        raise TypeError("no text")
    return value


def stub(link: Connection, number: int, name: str, doc: str | None) -> Callable[..., Any]:
    """A method of the solution's class, as it stands in the class here."""

    def method(self: object, *args: object, **kwargs: object) -> Any:
        return link.method(number, name, method, self, args, kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = doc
    return method


class DocText:
    """`__doc__` of the class and of a function's handle."""

    def __init__(self, own: str | None) -> None:
        self.own = own

    def __get__(self, instance: object, owner: object) -> str | None:
        found = self.own if not isinstance(instance, Handle) else instance._local.get("__doc__", self.own)
        return found if type(found) is str else None
