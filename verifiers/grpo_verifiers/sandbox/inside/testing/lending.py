"""What the test program lends to the solution: callables, iterators, coroutines, objects, and its patches of the library."""

from __future__ import annotations

import builtins
import inspect
import os
import random
import sys
import time
import types
from typing import Any

from .. import wire
from ..scratch import WorkingFolder, read_files, write_files
from ..wire import Fields
from .ends import Connection
from .lendable import ITERATORS, is_lendable, special_names, stream_message

PATCHABLE = (
    *((builtins, n) for n in ("print", "open")),
    *((time, n) for n in ("time", "sleep", "monotonic", "perf_counter", "localtime", "strftime", "time_ns")),
    *((random, n) for n in ("random", "randint", "choice", "shuffle", "sample", "uniform", "randrange", "choices")),
    *((os, n) for n in ("getcwd", "getenv", "listdir", "urandom")),
    *((os.path, n) for n in ("exists", "isfile", "getsize")),
)


class Lender:
    """Numbers what is lent, and answers what may be asked of it."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.lent: list[Any] = []
        self.has_files = self.has_random = self.has_environment = False
        self.state: Any = None
        self.folder = WorkingFolder()
        self.originals = [(module, name, getattr(module, name)) for module, name in PATCHABLE]

    def world(self) -> dict[str, Any] | None:
        """What of the library the test program has patched, and its scratch files; None where there is nothing."""
        world: dict[str, Any] = {}
        for module, name, original in self.originals:
            found = getattr(module, name)
            if found is not original:
                world.setdefault("patches", {})[f"{module.__name__}.{name}"] = self.link.encode(found)
        self.has_environment |= bool(os.environ)
        if self.has_environment:  # also where the last variable was taken back
            world["environ"] = dict(os.environ)
        if self.has_files:
            world["files"] = read_files()
        if self.has_random and (state := random.getstate()) != self.state:
            self.state = state
            world["random"] = [state[0], list(state[1]), state[2]]
        return world or None

    def news(self) -> dict[str, Any] | None:
        """The same for what is no call, without the environment, which calls bring; None where nothing is patched or shared."""
        world = self.world() or {}
        world.pop("environ", None)
        return world or None

    def take_files(self, files: Fields) -> None:
        """Files that the solution has written into its scratch folder."""
        if self.has_files:
            write_files({str(k): v for k, v in files.items()})

    def lend(self, value: object) -> Any:
        """The message for something of the test.

        Raises:
            TypeError: it cannot be lent.
        """
        kind = type(value)
        if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in sys.stdlib_module_names:
            return {"mod": value.__name__}
        if isinstance(value, BaseException):
            return self.error(value)
        driven = self.link.mirrors.driven.get(id(value))
        if driven is not None:
            return {"k": driven}
        # what both sides have goes by its name and stays itself
        known = self._named(value)
        if known is not None:
            return {"g": known}
        if (
            isinstance(value, ITERATORS)
            or kind.__module__ == "itertools"
            or (kind.__module__, kind.__name__) == ("_csv", "reader")
        ):
            return {"it": [self.number(value)]}
        if isinstance(value, types.AsyncGeneratorType):
            return {"ag": [self.number(value), value.__name__]}
        if isinstance(value, types.CoroutineType):
            return {"co": [self.number(value), str(getattr(value, "__name__", ""))]}
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.FunctionType):
            return {"fn": [self.number(value), *self._function(value)]}
        if kind.__name__ in self.link.shared and self.link.namespace.get(kind.__name__) is kind:
            return {"o": [kind.__name__, [[k, self.link.encode(v)] for k, v in vars(value).items()]]}
        made = stream_message(value)
        if made is not None:
            return made
        if kind.__module__ == "__main__":
            return {"ob": [self.number(value), self._class(kind), []]}
        if callable(value) and not (is_lendable(kind) and kind.__module__ not in ("functools", "operator")):
            named = [str(getattr(value, n, "")) for n in ("__name__", "__qualname__")]
            return {"cb": [self.number(value), *named, getattr(value, "__doc__", None)]}
        if is_lendable(kind):
            about = self._named(kind) or ["builtins", "object"]
            return {"ob": [self.number(value), {"g": about}, special_names(kind)]}
        raise TypeError(f"a {kind.__name__} of the test cannot be passed to the solution")

    def error(self, value: BaseException) -> Any:
        """The message for an exception of the test."""
        number = vars(value).get("_number")
        if number is not None:
            return {"k": number}
        about = self.link.encode(type(value))
        notes = [str(n) for n in getattr(value, "__notes__", ())]
        return {"tx": [self.number(value), about, [self.link.encode(a) for a in value.args], notes]}

    def _class(self, cls: type[Any]) -> Any:
        """A class of the test: by name where the prompt defines it, else with its bases and special methods."""
        name: str = cls.__name__
        if name in self.link.shared and self.link.namespace.get(name) is cls:
            return {"sc": name}
        parents = [self.link.encode(b) for b in cls.__bases__]
        doc = cls.__doc__ if isinstance(cls.__doc__, str) else None
        return {"tc": [self.number(cls), name, doc, parents, special_names(cls)]}

    def _function(self, value: types.FunctionType) -> list[Any]:
        parameters = []
        for p in inspect.signature(value).parameters.values():
            has = p.default is not p.empty
            parameters.append([p.name, int(p.kind), has, self._told(p.default) if has else None])
        notes = [[k, self._told(v)] for k, v in value.__annotations__.items()]
        about = [value.__name__, value.__qualname__, value.__doc__, value.__code__.co_flags]
        return [*about, parameters, notes]

    def _told(self, value: object) -> Any:
        """An annotation or default: what cannot be lent is told by its class, for nobody may look at it."""
        try:
            return self.link.encode(value)
        except Exception:  # noqa: BLE001 - of whatever a test writes there
            return type(value).__name__

    def lent_class(self, body: int) -> type:
        """A class of the test that has been lent.

        Raises:
            BadWire: what was lent under this number is no class.
        """
        found = self.lent[body]
        if not isinstance(found, type):
            raise wire.BadWire("no class")
        return found

    def _named(self, value: object) -> list[str] | None:
        module = getattr(value, "__module__", None) if isinstance(value, type | types.FunctionType) else None
        if isinstance(value, types.BuiltinFunctionType):
            module = getattr(value, "__module__", None) or "builtins"
        name = getattr(value, "__qualname__", "")
        if module not in sys.stdlib_module_names or module == "__main__" or not name.isidentifier():
            return None
        # a test's own thing may carry a name of the library: what stands under it must be this very object
        return [module, name] if getattr(sys.modules.get(module), name, None) is value else None

    def number(self, value: object) -> int:
        """The number of something lent."""
        for number, lent in enumerate(self.lent):
            if lent is value or _is_same_method(lent, value):
                return number
        self.lent.append(value)
        return len(self.lent) - 1


def _is_same_method(first: object, second: object) -> bool:
    """Whether two bound methods, made anew at each look, are one."""
    for kind in (types.MethodType, types.BuiltinMethodType):
        if isinstance(first, kind) and isinstance(second, kind):
            return first.__self__ is second.__self__ and first.__name__ == second.__name__
    return False
