"""What the test program lends to the solution: its functions, classes, exceptions, iterators and objects, as near to the real
ones as can be: functions are functions, classes classes, and exceptions can be raised and caught."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from ..wire import Parts
from .ends import PeerEnd
from .loop import LOOP


class LentClass(type):
    """The class of classes that stand for the test's: calling one makes an object there."""

    _peer: PeerEnd
    _class_number: int

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        if "_class_number" in vars(cls):
            return call(cls._peer, cls._class_number, args, kwargs)
        return super().__call__(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or "_class_number" not in vars(cls):
            raise AttributeError(name)
        return cls._peer.ask(["get", cls._class_number, name])

    # an enumeration of the test is walked and looked up as a class
    def __iter__(cls) -> Any:
        return iter(_special(cls, "__iter__"))

    def __getitem__(cls, key: object) -> Any:
        return _special(cls, "__getitem__", key)

    def __len__(cls) -> int:
        return int(_special(cls, "__len__"))


def _special(cls: LentClass, name: str, *args: object) -> Any:
    if "_class_number" not in vars(cls):
        raise TypeError(f"`{cls.__name__}` has no {name}")
    return cls._peer.ask(["special", cls._class_number, name, [cls._peer.encode(a) for a in args]])


class FromTest(metaclass=LentClass):
    """Something of the test program, by its number there: a callable object, an iterator or an object."""

    def __init__(self, peer: PeerEnd, tag: str, number: int) -> None:
        for name, value in (("_peer", peer), ("_tag", tag), ("_number", number)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if self._tag not in ("ob", "cb") or name.startswith("__"):
            raise AttributeError(name)
        return self._peer.ask(["get", self._number, name])

    def __setattr__(self, name: str, value: object) -> None:
        if self._tag != "ob" or name.startswith("__"):
            raise AttributeError(name)
        self._peer.ask(["set", self._number, name, self._peer.encode(value)])

    def __iter__(self) -> FromTest:
        if self._tag != "it":
            raise TypeError("not iterable")
        return self

    def __next__(self) -> Any:
        if self._tag != "it":
            raise TypeError("not an iterator")
        return self._peer.ask(["next", self._number])

    def __copy__(self) -> Any:
        return self._peer.ask(["copy", self._number])

    def __deepcopy__(self, memo: object) -> Any:
        return self._peer.ask(["deepcopy", self._number])


class LentCallable(FromTest):
    """Something that can be called."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return call(self._peer, self._number, args, kwargs)


def call(peer: PeerEnd, number: int, args: Iterable[object], kwargs: dict[str, Any]) -> Any:
    """Call something of the test."""
    return peer.ask(["call", number, [peer.encode(a) for a in args], peer.encode(kwargs)])


def lent_function(peer: PeerEnd, body: Parts) -> Any:
    """A function that calls one of the test, with its name, notes and signature."""
    number, name, qualname, doc, flags, parameters, notes = body
    if flags & inspect.CO_COROUTINE:

        async def function(*args: object, **kwargs: object) -> Any:
            return await call(peer, number, args, kwargs)
    else:

        def function(*args: object, **kwargs: object) -> Any:  # type: ignore[misc]
            return call(peer, number, args, kwargs)

    function.__name__, function.__qualname__, function.__doc__ = name, qualname, doc
    function.__module__ = "__main__"
    made: Any = function
    made.__annotations__ = {k: peer.decode(v) for k, v in notes}
    given = [
        inspect.Parameter(
            title,
            inspect._ParameterKind(kind),
            default=peer.decode(default) if has else inspect.Parameter.empty,
            annotation=made.__annotations__.get(title, inspect.Parameter.empty),
        )
        for title, kind, has, default in parameters
    ]
    returned = made.__annotations__.get("return", inspect.Signature.empty)
    made.__signature__ = inspect.Signature(given, return_annotation=returned, __validate_parameters__=False)
    return made


def lent_coroutine(peer: PeerEnd, body: Parts) -> Any:
    """A coroutine that waits for one of the test."""

    async def wait() -> Any:
        return await OfTest(peer, body[0])

    made: Any = wait()
    made.__name__ = made.__qualname__ = body[1]
    return made


def lent_stream(peer: PeerEnd, body: Parts) -> Any:
    """An asynchronous generator whose steps are those of one of the test."""
    number, name = body

    async def generate() -> AsyncGenerator[Any, Any]:
        how, sent = "asend", list[object]([None])
        while True:
            try:
                value = await peer.ask(["stream", number, how, [peer.encode(v) for v in sent]])
            except StopAsyncIteration:
                return
            try:
                sent = [(yield value)]
                how = "asend"
            except GeneratorExit:
                await peer.ask(["stream", number, "aclose", []])
                raise
            except BaseException as err:  # noqa: BLE001 - whatever is thrown is for the test's generator to see
                how, sent = "athrow", [err]

    made: Any = generate()
    made.__name__ = made.__qualname__ = name
    return made


class OfTest:
    """Something of the test to be awaited: by its own loop, where the solution's is driven from there, else at once."""

    def __init__(self, peer: PeerEnd, number: int) -> None:
        self.peer, self.number = peer, number

    def __await__(self) -> Any:
        if LOOP.is_running():
            return LOOP.wait(self.number)
        return self._at_once()

    def _at_once(self) -> Any:
        return self.peer.ask(["run", self.number])
        yield


def _asking(dunder: str) -> Any:
    if dunder == "__await__":
        return lambda self: OfTest(self._peer, self._number).__await__()
    if dunder == "__call__":
        return lambda self, *args, **kwargs: call(self._peer, self._number, args, kwargs)
    return lambda self, *args: self._peer.ask(["special", self._number, dunder, [self._peer.encode(a) for a in args]])


def _blank(cls: type[Any], *args: object) -> Any:
    return cls.__new__(cls, *args)


def lent_object(peer: PeerEnd, body: Parts) -> Any:
    """An object of the test: of a class that stands for its own, or of the library's."""
    number, about, dunders = body
    cls = peer.decode(about)
    made: Any
    if isinstance(cls, LentClass):
        made = _blank(cls)
    else:  # a class of the library: the object is taken for one of it, and does what that one does over there
        space = {d: _asking(d) for d in dunders} | {"__class__": property(lambda self: cls)}
        taken: Any = LentClass(cls.__name__, (FromTest,), space)
        made = _blank(taken)
    FromTest.__init__(made, peer, "ob", number)
    return made


def lent_class(peer: PeerEnd, body: Parts) -> Any:
    """A class of the test. Of an exception class a real one, that can be raised and caught."""
    number, name, doc, parents, dunders = body
    bases = tuple(peer.decode(p) for p in parents)
    space: dict[str, Any] = {"__module__": "__main__", "__doc__": doc, "_peer": peer, "_class_number": number}
    if any(issubclass(b, BaseException) for b in bases):
        space["__getattr__"] = _error_attribute
        return LentClass(name, bases, space)
    space |= {d: _asking(d) for d in dunders}
    return LentClass(name, tuple(b for b in bases if isinstance(b, LentClass)) or (FromTest,), space)


def _error_attribute(self: Any, name: str) -> Any:
    if name.startswith("__") or "_number" not in vars(self):
        raise AttributeError(name)
    return type(self)._peer.ask(["get", self._number, name])


def lent_error(peer: PeerEnd, body: Parts) -> Any:
    """An exception that the test has made."""
    number, about, args, notes = body
    cls, values = peer.decode(about), [peer.decode(a) for a in args]
    made: Any
    if type(cls) is LentClass:
        made = _blank(cls, *values)
        made.args = tuple(values)
        made._number = number
    else:
        try:
            made = cls(*values)
        except TypeError:  # it wants more than its arguments tell
            made = cls.__new__(cls)
            made.args = tuple(values)
    for note in notes:
        made.add_note(note)
    return made
