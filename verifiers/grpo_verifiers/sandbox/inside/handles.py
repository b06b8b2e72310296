"""The test program's picture of the solution: values arrive as themselves, everything else as a handle.

A handle never decides a comparison: `==` is identity, `in` walks the items here, the truth value was sent once. What a
call has changed in its arguments is kept back and written at the end of the statement, so that a test's own reference
value (`assert f(xs) == sorted(xs)`) is made from the unchanged argument.
"""

from __future__ import annotations

import builtins
import io
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from . import frames, wire
from .objects import STD_EXCEPTIONS

SAFE_NAMES = frozenset(
    {"__name__", "__doc__", "__qualname__", "__annotations__", "__len__", "__dict__", "__wrapped__"}
)
# StopIteration would end a test's own loop early, SystemExit the test itself, SkipTest would pass it
NEVER_RAISED = frozenset({"StopIteration", "StopAsyncIteration", "GeneratorExit"})
ITERATORS: tuple[type, ...] = (
    types.GeneratorType,
    type(iter([])),
    type(iter(())),
    type(iter("")),
    type(iter({})),
    type(iter(range(0))),
    map,
    filter,
    zip,
    enumerate,
    reversed,
)


class Stopped(BaseException):
    """The solution is gone, or raised what is no Exception: no test can pass any more."""


class SolutionExit(SystemExit):
    """The solution called sys.exit inside a call; never taken for the end of the test program."""


class Link:
    """The connection to one solution."""

    def __init__(self, fd: int, namespace: dict[str, Any], shared: frozenset[str], trusted: bool) -> None:
        self.fd, self.namespace, self.shared = fd, namespace, shared
        self.handle_class: type[Handle] = TrustedHandle if trusted else Handle
        self.handles: dict[int, Any] = {}
        self.lent: list[Any] = []
        self.pending: list[tuple[Any, Any]] = []
        self.calls, self.is_dead = 0, False

    def ask(self, *request: object) -> Any:
        """One question, and the answers to what the solution asks back meanwhile."""
        return self._ask(list(request), [], {})

    def call(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the solution."""
        self.calls += 1
        sent = [self.encode(a) for a in args]
        return self._ask(["call", number, sent, {k: self.encode(v) for k, v in kwargs.items()}], args, kwargs)

    def _ask(self, request: list[Any], args: object, kwargs: dict[str, Any]) -> Any:
        if self.is_dead:
            raise Stopped
        try:
            frames.send(self.fd, request)
            while True:
                reply = frames.receive(self.fd)
                if reply[0] == "ok":
                    value = self.decode(reply[1])
                    self._keep(reply[2:], args, kwargs)
                    return value
                if reply[0] == "raise":
                    self._keep(reply[3:], args, kwargs)
                    break
                frames.send(self.fd, self._answer(reply))
        except Exception as err:  # no malformed answer may reach a test as an exception that it expects
            self.is_dead = True
            raise Stopped from err
        raise self._exception(reply[1], reply[2], request[0])

    def _keep(self, changed: list[Any], args: Any, kwargs: dict[str, Any]) -> None:
        for place, value in changed[0] if changed else ():
            target = kwargs[place] if type(place) is str else args[place]
            self.pending.append((target, self.decode(value)))

    def _answer(self, request: Any) -> list[Any]:
        """What the solution asked of a function or iterator of the test."""
        kind, number = request[0], request[1]
        target = self.lent[number]
        try:
            if kind == "next":
                return ["ret", self.encode(next(target))]
            if kind == "get":
                return ["ret", self.encode(_attribute(target, request[2]))]
            if kind == "set":
                _set_attribute(target, request[2], self.decode(request[3]))
                return ["ret", None]
            args = [self.decode(a) for a in request[2]]
            return ["ret", self.encode(target(*args, **self.decode(request[3])))]
        except StopIteration:
            return ["stop"]
        except Exception as err:  # noqa: BLE001 - an error in the test's own callback belongs to the caller
            return ["exc", type(err).__name__, [self.encode(a) for a in err.args if type(a) in wire.ATOMS]]

    def commit(self) -> None:
        """Write back what calls of the finished statement changed in their arguments."""
        if self.pending:
            waiting, self.pending = self.pending, []
            for target, value in waiting:
                write_back(target, value)

    def encode(self, value: object) -> Any:
        return wire.encode(value, self._lend)

    def _lend(self, value: Any) -> Any:
        kind = type(value)
        if kind in (Handle, TrustedHandle):
            return {"k": value._number}
        if isinstance(value, type) and "_solution_number" in value.__dict__:
            return {"k": value.__dict__["_solution_number"]}
        module = getattr(value, "__module__", None) or (
            "builtins" if isinstance(value, types.BuiltinFunctionType) else None
        )
        name = getattr(value, "__qualname__", "")
        if (
            isinstance(value, (type, types.BuiltinFunctionType))
            and module in sys.stdlib_module_names
            and module != "__main__"
        ) and getattr(sys.modules.get(module), name, None) is value:
            return {"g": [module, name]}
        if isinstance(value, ITERATORS) or kind.__module__ == "itertools":
            return {"it": self._number(value)}
        if isinstance(value, type) or callable(value):
            return {"cb": self._number(value)}
        if kind.__name__ in self.shared and self.namespace.get(kind.__name__) is kind:
            return {"o": [kind.__name__, [[k, self.encode(v)] for k, v in vars(value).items()]]}
        if kind is io.StringIO:
            return {"io": value.getvalue()[value.tell() :]}
        if kind.__module__ == "__main__" and hasattr(value, "__dict__"):
            return {"ob": self._number(value)}
        raise TypeError(f"a {kind.__name__} of the test cannot be passed to the solution")

    def _number(self, value: object) -> int:
        for number, lent in enumerate(self.lent):
            if lent is value:
                return number
        self.lent.append(value)
        return len(self.lent) - 1

    def decode(self, message: object) -> Any:
        return wire.decode(message, self._resolve)

    def _resolve(self, tag: str, body: Any) -> Any:
        if tag == "h":
            return self._handle(body)
        if tag in ("cb", "it", "ob"):
            return self.lent[body]
        if tag == "o":
            return self._shared(*body)
        raise wire.BadWire(tag)

    def _shared(self, name: str, attributes: Any) -> Any:
        """An object of a class that the prompt defines: rebuilt from its attributes with the trusted class."""
        if name not in self.shared:
            raise wire.BadWire("not a class of the prompt")
        cls = self.namespace[name]
        made = cls.__new__(cls)
        for key, value in attributes:
            if not key.isidentifier() or key.startswith("__"):
                raise wire.BadWire("bad attribute")
            made.__dict__[key] = self.decode(value)
        return made

    def _handle(self, about: Any) -> Any:
        number = about["n"]
        found = self.handles.get(number)
        if found is None:
            if "e" in about:
                found = self._exception_class(about)
            else:
                found = self.handle_class(self, number, str(about["t"])[:100], bool(about.get("b", True)))
            self.handles[number] = found
        return found

    def _exception_class(self, about: Any) -> type[BaseException]:
        base = _standard(about["e"])
        name = str(about["t"])[:100]
        return type(name, (base,), {"_solution_number": about.get("n", -1), "__module__": "solution"})

    def _exception(self, about: Any, args: Any, request: str) -> BaseException:
        values = [self.decode(a) for a in args]
        names = [n.rpartition(".")[2] for n in about["e"]]
        if request == "next" and "StopIteration" in names:
            return StopIteration(*values)
        if "SystemExit" in names:
            return SolutionExit(*values)
        if "Exception" not in names:
            return Stopped(about["t"])
        if "n" in about:
            cls = self._handle(about)
        else:
            cls = _standard(about["e"])
        made: BaseException = cls.__new__(cls)
        made.args = tuple(values)
        return made


def _attribute(target: object, name: str) -> Any:
    """What a solution may see of a test's object: its own data and the methods that its class defines in the test."""
    if type(target).__module__ != "__main__" or name.startswith("_"):
        raise AttributeError(name)
    data = vars(target)
    if name in data:
        return data[name]
    if isinstance(vars(type(target)).get(name), types.FunctionType):
        return getattr(target, name)
    raise AttributeError(name)


def _set_attribute(target: object, name: str, value: object) -> None:
    """Set data of a test's object, never what its class defines."""
    if type(target).__module__ != "__main__" or name.startswith("_") or hasattr(type(target), name):
        raise AttributeError(name)
    vars(target)[name] = value


def _standard(names: list[str]) -> type[BaseException]:
    """The nearest standard exception class of these names that a test may see raised."""
    for full in names:
        module, _, name = full.rpartition(".")
        if name in NEVER_RAISED:
            return RuntimeError
        if module != "builtins" and module not in STD_EXCEPTIONS:
            continue  # unittest.SkipTest would pass a test case
        found = getattr(builtins if module == "builtins" else sys.modules.get(module), name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return Exception


def write_back(target: Any, value: Any) -> None:
    """Make a mutable argument equal to what the call left of it, keeping the identity of what is inside."""
    if type(target) is list and type(value) is list:
        merged = [_merge(old, new) for old, new in zip(target, value, strict=False)]
        target[:] = merged + value[len(merged) :]
    elif isinstance(target, dict) and isinstance(value, dict):
        merged_items = {k: _merge(target[k], v) if k in target else v for k, v in value.items()}
        target.clear()
        target.update(merged_items)
    elif isinstance(target, set) and isinstance(value, set):
        target.clear()
        target.update(value)
    elif type(target) is bytearray and type(value) is bytearray:
        target[:] = value
    elif type(target) is deque and type(value) is deque:
        target.clear()
        target.extend(value)
    elif type(target) is tuple and type(value) is tuple:
        for old, new in zip(target, value, strict=False):
            _merge(old, new)
    elif type(target).__module__ == "numpy" and type(value) is type(target) and target.shape == value.shape:
        target[...] = value
    elif type(target) is type(value) and hasattr(target, "__dict__"):
        target.__dict__.update(value.__dict__)


def _merge(old: object, new: object) -> Any:
    if type(old) is type(new) and type(old) in (list, dict, set, tuple):
        write_back(old, new)
        return old if type(old) is not tuple else new
    return new


class Handle:
    """Something of the solution that is no plain value."""

    __slots__ = ("_link", "_number", "_truth", "_type")

    def __init__(self, link: Link, number: int, kind: str, truth: bool) -> None:
        for name, value in (("_link", link), ("_number", number), ("_type", kind), ("_truth", truth)):
            object.__setattr__(self, name, value)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._link.call(self._number, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in SAFE_NAMES:
            raise AttributeError(name)
        return self._link.ask("get", {"k": self._number}, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._link.ask("set", {"k": self._number}, name, self._link.encode(value))

    def __delattr__(self, name: str) -> None:
        self._link.ask("del", {"k": self._number}, name)

    def __getitem__(self, key: object) -> Any:
        return self._link.ask("item", {"k": self._number}, self._link.encode(key))

    def __setitem__(self, key: object, value: object) -> None:
        self._link.ask("setitem", {"k": self._number}, self._link.encode(key), self._link.encode(value))

    def __delitem__(self, key: object) -> None:
        self._link.ask("delitem", {"k": self._number}, self._link.encode(key))

    def __iter__(self) -> Iterator[Any]:
        return _walk(self._link.ask("iter", {"k": self._number}))

    def __next__(self) -> Any:
        return self._link.ask("next", {"k": self._number})

    def __len__(self) -> int:
        found = self._link.ask("len", {"k": self._number})
        if type(found) is not int:
            raise TypeError("no length")
        return found

    def __contains__(self, item: object) -> bool:
        return any(item is found or item == found for found in self)

    def __bool__(self) -> bool:
        return bool(self._truth)

    def __str__(self) -> str:
        return _text(self._link.ask("str", {"k": self._number}))

    def __repr__(self) -> str:
        return _text(self._link.ask("repr", {"k": self._number}))

    def __enter__(self) -> Any:
        return self._link.ask("enter", {"k": self._number})

    def __exit__(self, kind: object, value: object, trace: object) -> Any:
        return self._link.ask("exit", {"k": self._number}) if kind is None else False

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, Handle) and bool(
            self._link.ask("isinstance", {"k": value._number}, {"k": self._number})
        )

    def __subclasscheck__(self, value: object) -> bool:
        return isinstance(value, Handle) and bool(
            self._link.ask("issubclass", {"k": value._number}, {"k": self._number})
        )


def _walk(iterator: Any) -> Iterator[Any]:
    """The items of an iterator of the solution; also of the plain copy of one."""
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError("no text")
    return value


def _operator(name: str) -> Callable[..., Any]:
    def ask(self: TrustedHandle, *others: object) -> Any:
        return self._link.ask(name, {"k": self._number}, *[self._link.encode(o) for o in others])

    return ask


def _reflected(name: str) -> Callable[..., Any]:
    def ask(self: TrustedHandle, other: object) -> Any:
        return self._link.ask(name, self._link.encode(other), {"k": self._number})

    return ask


class TrustedHandle(Handle):
    """With `trusted_objects`: the solution's own operators decide, so the verdict comes from the solution's code."""

    __slots__ = ()


for _name in [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "neg",
    "abs",
    "contains",
    "hash",
    "round",
    "int",
    "float",
]:
    setattr(TrustedHandle, f"__{_name}__", _operator(_name))
for _name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]:
    setattr(TrustedHandle, f"__r{_name}__", _reflected(_name))
