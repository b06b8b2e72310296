"""What the test program lends to the solution: callables, iterators, coroutines, objects, and its patches of the library."""

from __future__ import annotations

import builtins
import inspect
import io
import os
import random
import sys
import threading
import time
import types
from typing import Any

from .. import wire
from ..scratch import read_files, write_files
from ..wire import Value
from ..writing import hides
from .ends import Connection

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
SPECIAL = """
__len__ __getitem__ __setitem__ __delitem__ __contains__ __iter__ __next__ __call__ __enter__ __exit__ __bool__ __str__
__repr__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __add__ __sub__ __mul__ __truediv__ __int__ __float__ __index__
""".split()  # noqa: SIM905
PATCHABLE = (
    *((builtins, n) for n in ("print", "open")),
    *((time, n) for n in ("time", "sleep", "monotonic", "perf_counter", "localtime", "strftime", "time_ns")),
    *(
        (random, n)
        for n in ("random", "randint", "choice", "shuffle", "sample", "uniform", "randrange", "choices")
    ),
    *((os, n) for n in ("getcwd", "getenv", "listdir", "urandom")),
    *((os.path, n) for n in ("exists", "isfile", "getsize")),
)
ORIGINALS = tuple((module, name, getattr(module, name)) for module, name in PATCHABLE)
LENDABLE = (
    "queue",
    "threading",
    "_thread",
    "_queue",
    "collections",
    "logging",
    "datetime",
    "unittest.mock",
    "types",
)


class Lender:
    """Numbers what is lent, and answers what may be asked of it."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.lent: list[Any] = []
        self.has_files = self.has_random = False
        self.state: Any = None

    def world(self) -> dict[str, Any] | None:
        """What of the library the test program has patched, and its scratch files; None where there is nothing."""
        world: dict[str, Any] = {}
        for module, name, original in ORIGINALS:
            found = getattr(module, name)
            if found is not original:
                world.setdefault("patches", {})[f"{module.__name__}.{name}"] = self.link.encode(found)
        if os.environ:
            world["environ"] = dict(os.environ)
        if self.has_files:
            world["files"] = read_files()
        if self.has_random and (state := random.getstate()) != self.state:
            self.state = state
            world["random"] = [state[0], list(state[1]), state[2]]
        return world or None

    def take_files(self, files: Value) -> None:
        """Files that the solution has written into its scratch folder."""
        if self.has_files:
            write_files({str(k): v for k, v in files.items()})

    def lend(self, value: Value) -> Any:
        """The message for something of the test.

        Raises:
            TypeError: it cannot be lent.
        """
        kind = type(value)
        if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in sys.stdlib_module_names:
            return {"mod": value.__name__}
        if isinstance(value, BaseException):
            number = vars(value).get("_number")
            if number is not None:
                return {"k": number}
            if kind.__module__ in sys.stdlib_module_names:
                return {"xe": [kind.__module__, kind.__qualname__, [self.link.encode(a) for a in value.args]]}
            return {"ob": [self.number(value), kind.__name__, []]}
        known = self._named(value)
        if known is not None:
            return {"g": known}
        if isinstance(value, ITERATORS) or kind.__module__ == "itertools":
            return {"it": self.number(value)}
        if isinstance(value, types.CoroutineType):
            number = self.link.mirrors.coroutines.get(id(value))
            return {"co": self.number(value)} if number is None else {"k": number}
        if isinstance(value, type) or (callable(value) and kind.__module__ != "__main__"):
            named = [str(getattr(value, n, "")) for n in ("__name__", "__qualname__")]
            return {"cb": [self.number(value), *named, getattr(value, "__doc__", None)]}
        if kind.__name__ in self.link.shared and self.link.namespace.get(kind.__name__) is kind:
            return {"o": [kind.__name__, [[k, self.link.encode(v)] for k, v in vars(value).items()]]}
        if kind is io.StringIO:
            return {"io": [value.getvalue(), value.tell()]}
        if kind.__module__ == "__main__":
            dunders = [n for n in SPECIAL if any(n in vars(c) for c in kind.__mro__[:-1])]
            dunders = [n for n in dunders if n != "__hash__" or kind.__hash__ is not None]
            return {"ob": [self.number(value), kind.__name__, dunders]}
        if kind.__module__ in LENDABLE:
            return {"ob": [self.number(value), kind.__name__, [n for n in SPECIAL if n in vars(kind)]]}
        raise TypeError(f"a {kind.__name__} of the test cannot be passed to the solution")

    def _named(self, value: Value) -> list[str] | None:
        module = getattr(value, "__module__", None) if isinstance(value, type | types.FunctionType) else None
        if isinstance(value, types.BuiltinFunctionType):
            module = getattr(value, "__module__", None) or "builtins"
        name = getattr(value, "__qualname__", "")
        if module not in sys.stdlib_module_names or module == "__main__" or not name.isidentifier():
            return None
        return [module, name] if getattr(sys.modules.get(module), name, None) is value else None

    def number(self, value: object) -> int:
        """The number of something lent."""
        for number, lent in enumerate(self.lent):
            if lent is value:
                return number
        self.lent.append(value)
        return len(self.lent) - 1

    def attribute(self, target: Value, name: str) -> Any:
        """What a solution may see of a test's object: its own data and what its class defines, but for the library's mocks."""
        if type(name) is not str or name.startswith("_"):
            raise AttributeError(name)
        kind = type(target)
        if kind.__module__ == "unittest.mock":
            if hasattr(kind, name) or name.startswith("assert") or "called" in name:
                raise AttributeError(name)
            return getattr(target, name)
        if kind.__module__ != "__main__" and kind.__module__ not in LENDABLE:
            if isinstance(target, types.FunctionType) and name in vars(target):
                return vars(target)[name]
            raise AttributeError(name)
        found = getattr(target, name)
        if isinstance(found, types.MethodType | types.BuiltinMethodType) or not callable(found):
            return found
        if name in getattr(target, "__dict__", {}) or isinstance(found, types.FunctionType):
            return found
        raise AttributeError(name)

    def set_attribute(self, target: Value, name: str, value: object) -> None:
        """Set data of a test's object, never what its class defines."""
        if type(target).__module__ != "__main__" or name.startswith("_") or hides(type(target), name):
            raise AttributeError(name)
        setattr(target, name, value)

    def answer(self, request: Value) -> list[Any]:
        """What the solution asked of a function, iterator or stream of the test."""
        try:
            if request[0] == "input":
                return ["ret", str(builtins.input(str(request[1])))]
            if request[0] == "stdin":
                return ["ret", str(sys.stdin.read() if request[1] == "read" else sys.stdin.readline())]
            return ["ret", self.link.encode(self._asked_of(request[0], self.lent[request[1]], request[2:]))]
        except StopIteration:
            return ["stop"]
        except Exception as err:  # noqa: BLE001 - an error in the test's own callback belongs to the caller
            return [
                "exc",
                type(err).__name__,
                [self.link.encode(a) for a in err.args if type(a) in wire.ATOMS],
            ]

    def _asked_of(self, kind: str, target: Value, rest: list[Any]) -> Any:
        if kind == "next":
            return next(target)
        if kind == "get":
            return self.attribute(target, rest[0])
        if kind == "set":
            return self.set_attribute(target, rest[0], self.link.decode(rest[1]))
        if kind == "special":
            return special(target, rest[0], [self.link.decode(a) for a in rest[1]])
        if kind == "run":
            return self.run(target)
        args = [self.link.decode(a) for a in rest[0]]
        return target(*args, **self.link.decode(rest[1]))

    def run(self, coroutine: Value) -> Any:
        """The outcome of a coroutine of the test that the solution awaits: run beside the loop that waits for the solution."""
        import asyncio

        out: list[Any] = []

        def work() -> None:
            try:
                out.append((True, asyncio.run(coroutine)))
            except BaseException as err:  # noqa: BLE001 - raised again where it is waited for
                out.append((False, err))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        good, value = out[0]
        if not good:
            raise value
        return value


def special(target: Value, name: str, args: list[Any]) -> Any:
    """A special method of an object of the test."""
    if name not in SPECIAL:
        raise AttributeError(name)
    found = inspect.getattr_static(type(target), name)
    return found(target, *args)
