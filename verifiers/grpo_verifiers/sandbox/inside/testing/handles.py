"""Handles: what of the solution is no plain value, as the test program sees it.

Every class of the solution has a class here that can do what the solution's can and no more, so that `isinstance`,
`callable` and `hasattr` give the honest answer. A handle never decides a comparison on the solution's word: `==` is
identity, and for dataclasses the fields as they were when the object was handed out.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

from ..wire import Value
from .ends import Connection

SLOTS = ("_link", "_number", "_fields", "_doubted", "_local")


class HandleMeta(type):
    """The class of classes that stand for the solution's: calling one makes an object there."""

    _class_link: Connection
    _class_number: int

    def __new__(mcs, name: str, parents: tuple[type, ...], space: dict[str, Any], **kwargs: Value) -> Any:
        link = next((vars(p)["_class_link"] for p in parents if "_class_number" in vars(p)), None)
        if link is None or "_class_number" in space:
            return super().__new__(mcs, name, parents, space)
        return link.derive(mcs, name, parents, space)

    def __init__(cls, name: str, parents: tuple[type, ...], space: dict[str, Any], **kwargs: Value) -> None:
        super().__init__(name, parents, space)

    def __call__(cls, *args: Value, **kwargs: Value) -> Any:
        return cls._class_link.construct(cls, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if "_class_number" not in vars(cls) or (name.startswith("__") and name not in ("__annotations__",)):
            raise AttributeError(name)
        return cls._class_link.ask("get", {"k": cls._class_number}, name)

    def __setattr__(cls, name: str, value: Value) -> None:
        if not name.startswith("__"):
            cls._class_link.ask("set", {"k": cls._class_number}, name, cls._class_link.encode(value))
        if name.startswith("__") or name in vars(cls):
            super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        cls._class_link.ask("del", {"k": cls._class_number}, name)
        if name in vars(cls):
            super().__delattr__(name)

    # hidden from the test program: what stands behind all handles
    __mro__ = property(lambda cls: tuple(c for c in type.mro(cls) if c is not Handle))
    __bases__ = property(
        lambda cls: tuple(object if c is Handle else c for c in type.__dict__["__bases__"].__get__(cls))
    )

    def __iter__(cls) -> Any:
        return walk(cls._class_link.ask("iter", {"k": cls._class_number}))

    def __getitem__(cls, key: Value) -> Any:
        return cls  # Stack[int]


class Handle(metaclass=HandleMeta):
    """Something of the solution that is no plain value. Without notes of types, which its functions would seem to have."""

    __slots__ = SLOTS

    def __init__(self, *args: Value, **kwargs: Value) -> None:
        """Reached from a subclass in the test by `super().__init__()`: there is nothing to do."""

    def __init_subclass__(cls, **kwargs: Value) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name in self._local:
            return self._local[name]
        if name.startswith("__") and name not in ("__dict__", "__wrapped__", "__self__", "__func__"):
            raise AttributeError(name)
        return self._link.ask("get", {"k": self._number}, name)

    def __setattr__(self, name: str, value: Value) -> None:
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
            if type(other) is type(self) and self._fields is not None and other._fields is not None:
                return self._fields == other._fields
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

    def __deepcopy__(self, memo: Value) -> Any:
        return self._link.ask("deepcopy", {"k": self._number})

    def __reduce_ex__(self, protocol: Value) -> Any:
        raise TypeError("an object of the solution cannot be pickled by the test")


def make(cls: type, link: Connection, number: int, fields: list[Any] | None, local: dict[str, Any]) -> Handle:
    """A handle of a class, without asking anybody."""
    made: Handle = object.__new__(cls)
    for name, value in zip(SLOTS, (link, number, fields, False, local), strict=True):
        object.__setattr__(made, name, value)
    return made


def doubt(handle: Handle) -> None:
    """Never let it be equal to anything: it is not what the test asked for."""
    object.__setattr__(handle, "_doubted", True)
    object.__setattr__(handle, "_fields", None)


def walk(iterator: Value) -> Iterator[Any]:
    """The items of an iterator of the solution; also of the plain copy of one."""
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


def iterated(found: Value) -> Any:
    """What an object of the solution gave as its iterator: itself perhaps, and then it is that."""
    return found if isinstance(found, Handle) else walk(found)


def text(value: object) -> str:
    """A text, and nothing else."""
    if type(value) is not str:
        raise TypeError("no text")
    return value


def _call(self: Value, *args: object, **kwargs: object) -> Any:
    return self._link.call(self._number, args, kwargs)


def _contains(self: Value, item: object) -> bool:
    return any(item is found or item == found for found in self)


def _exit(self: Value, kind: object, value: Value, trace: object) -> Any:
    sent = [] if value is None else [self._link.encode(value)]
    return bool(self._link.ask("exit", {"k": self._number}, *sent))


def _whole(self: Value) -> int:
    found = self._link.ask("len", {"k": self._number})
    if type(found) is not int:
        raise TypeError("no length")
    return found


def _asking(operation: str, kind: type | None = None) -> Callable[..., Any]:
    def ask(self: Value, *others: object) -> Any:
        found = self._link.ask(operation, {"k": self._number}, *[self._link.encode(o) for o in others])
        if kind is not None and type(found) is not kind:
            raise TypeError(f"no {kind.__name__}")
        return found

    return ask


def _with_handles(operation: str) -> Callable[..., Any]:
    """An operator between two objects of the solution; with a value of the test it could answer what the test expects."""

    def ask(self: Value, other: object) -> Any:
        if not isinstance(other, Handle) and not self._link.trusted:
            self._link.untrusted = True
            return NotImplemented
        return self._link.ask(operation, {"k": self._number}, self._link.encode(other))

    return ask


def _compared(operation: str) -> Callable[..., Any]:
    def ask(self: Value, other: object) -> Any:
        if not self._link.trusted:
            self._link.untrusted = True
            return NotImplemented
        return self._link.ask(operation, {"k": self._number}, self._link.encode(other))

    return ask


def _reflected(operation: str) -> Callable[..., Any]:
    def ask(self: Value, other: object) -> Any:
        return self._link.ask(operation, self._link.encode(other), {"k": self._number})

    return ask


def _driven(operation: str) -> Callable[..., Any]:
    """A method that gives something to await."""

    def ask(self: Value, *args: Value) -> Any:
        sent = [self._link.encode(args[1])] if operation == "aexit" and args[1] is not None else []
        return self._link.ask(operation, {"k": self._number}, *sent)

    return ask


def _awaited(self: Value) -> Any:
    return self._link.ask("await", {"k": self._number}).__await__()


ABILITIES: dict[str, Callable[..., Any]] = {
    "__call__": _call,
    "__iter__": lambda self: iterated(self._link.ask("iter", {"k": self._number})),
    "__next__": _asking("next"),
    "__len__": _whole,
    "__contains__": _contains,
    "__getitem__": _asking("item"),
    "__setitem__": _asking("setitem"),
    "__delitem__": _asking("delitem"),
    "__enter__": _asking("enter"),
    "__exit__": _exit,
    "__reversed__": lambda self: iterated(self._link.ask("reversed", {"k": self._number})),
    "__bool__": _asking("bool", bool),
    "__index__": _asking("index", int),
    "__int__": _asking("int", int),
    "__float__": _asking("float", float),
    "__aiter__": _asking("aiter"),
    "__anext__": _driven("anext"),
    "__aenter__": _driven("aenter"),
    "__aexit__": _driven("aexit"),
    "__await__": _awaited,
}
ABILITIES |= {f"__{n}__": _asking(n) for n in ("round", "abs", "neg", "pos", "invert")}
BETWEEN = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
ABILITIES |= {f"__{n}__": _with_handles(n) for n in BETWEEN}
ABILITIES |= {f"__{n}__": _compared(n) for n in ("lt", "le", "gt", "ge")}
# with `trusted_objects` the solution's own operators decide, so the verdict comes from the solution's code
TRUSTED: dict[str, Callable[..., Any]] = {f"__{n}__": _compared(n) for n in ("eq", "ne")} | {
    "__hash__": _asking("hash", int),
    "__contains__": _asking("contains"),
}
TRUSTED |= {f"__r{n}__": _reflected(n) for n in BETWEEN}


GENERATOR: dict[str, Callable[..., Any]] = {n: _asking(n) for n in ("send", "throw", "close")}


def stub(link: Connection, number: int, name: str, doc: str | None) -> Callable[..., Any]:
    """A method of the solution's class, as it stands in the class here."""

    def method(self: Value, *args: Value, **kwargs: Value) -> Any:
        return link.method(number, name, method, self, args, kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = doc
    return method


def _template() -> None: ...


def _generator() -> Iterator[None]:
    yield


async def _coroutine() -> None: ...


async def _async_generator() -> Any:
    yield


def function_local(link: Connection, about: Value) -> dict[str, Any]:
    """What is known of a function of the solution besides that it can be called: name, signature, notes."""
    import inspect

    flags = about["flags"]
    if flags & inspect.CO_COROUTINE:
        code: Any = _coroutine.__code__
    elif flags & inspect.CO_ASYNC_GENERATOR:
        code = _async_generator.__code__
    else:
        code = _generator.__code__ if flags & inspect.CO_GENERATOR else _template.__code__
    notes = {str(k): link.decode(v) for k, v in about["notes"].items()}
    parameters = []
    for name, kind, has_default, default in about["parameters"]:
        parameters.append(
            inspect.Parameter(
                name,
                inspect._ParameterKind(kind),
                default=link.decode(default) if has_default else inspect.Parameter.empty,
                annotation=notes.get(name, inspect.Parameter.empty),
            )
        )
    signature = inspect.Signature(
        parameters,
        return_annotation=notes.get("return", inspect.Signature.empty),
        __validate_parameters__=False,
    )
    plain = [p for p in parameters if p.kind <= 1]
    return {
        "__name__": text(about["name"]),
        "__qualname__": text(about["qualname"]),
        "__annotations__": notes,
        "__doc__": about["doc"] if type(about["doc"]) is str else None,
        "__code__": code.replace(
            co_name=about["name"],
            co_argcount=len(plain),
            co_varnames=tuple(p.name for p in plain),
            co_nlocals=len(plain),
        )
        if code is _template.__code__
        else code,
        "__signature__": signature,
        "__defaults__": tuple(p.default for p in plain if p.default is not p.empty) or None,
        "__kwdefaults__": None,
        "__globals__": {},
        "__closure__": None,
    }


class DocText:
    """`__doc__` of the class and of a function's handle."""

    def __init__(self, own: str | None) -> None:
        self.own = own

    def __get__(self, instance: Value, owner: Value) -> str | None:
        found = self.own if instance is None else instance._local.get("__doc__", self.own)
        return found if type(found) is str else None


EMPTY: tuple[Any, ...] = ([], (), "", {}, range(0), set())
KINDS: dict[tuple[str, str], type] = {
    ("builtins", kind.__qualname__): kind
    for kind in (
        types.GeneratorType,
        types.AsyncGeneratorType,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
        map,
        filter,
        zip,
        enumerate,
        reversed,
        *(type(iter(o)) for o in EMPTY),
    )
}
"""Classes of the interpreter that a handle may be taken for; none of them compares equal to anything."""
