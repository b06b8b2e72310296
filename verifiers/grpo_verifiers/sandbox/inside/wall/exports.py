"""What the solution hands out: objects by number, their classes described once, and what comes in from the test program.

Nothing here is trusted. A lie about a class or an object is a lie about a value, and the other side takes it for no more.
An object is sent by its number, with its class; a class is described once, by its bases, methods and special methods, and
by its fields where it is a dataclass.
"""

from __future__ import annotations

import collections
import enum
import sys
import types
from collections.abc import Callable
from typing import Any

from . import exceptions, values
from .proxies import OPERATORS, PLAIN_TYPES, SPECIAL
from .values import Value
from .write_back import SharingCoder

IMMUTABLE = tuple(PLAIN_TYPES.values())
CONTAINERS = (collections.OrderedDict, collections.Counter, collections.defaultdict, collections.deque, list, dict, set)


class Exports(SharingCoder):
    """The objects that have been handed out, by number, and the functions that the test has handed in."""

    def __init__(self, module: types.ModuleType, classes: tuple[str, ...], call_back: Callable[..., Any]) -> None:
        super().__init__(classes, module.__dict__)
        self.module, self.call_back = module, call_back
        self.objects, self.ids = dict[int, Any](), dict[int, int]()
        self.last = 0
        self.described, self.new = set[int](), list[int]()
        self.handed_in, self.homes = dict[int, Any](), dict[int, Any]()
        self.touched = list[int]()
        """Objects with fields that the request named: their fields are sent with the reply."""

    def number(self, value: object) -> int:
        """The number of an object, which is kept alive until the trial ends."""
        found = self.ids.get(id(value))
        if found is None:
            self.last += 1
            found = self.ids[id(value)] = self.last
            self.objects[found] = value
        return found

    def forget_new(self) -> None:
        """A message was not sent: what it would have described is described again."""
        self.described.difference_update(self.new)

    def fields(self, value: object) -> list[Any] | None:
        """The compared fields of a dataclass object; None for anything else."""
        found = getattr(type(value), "__dataclass_fields__", None)
        if type(found) is not dict or not getattr(type(value), "__dataclass_params__", None):
            return None
        try:
            held = [getattr(value, n) for n, f in found.items() if f.compare]
        except AttributeError:
            return None
        return [values.encode(v, self) for v in held]

    def subclass(self, value: Value, kind: type) -> Any:
        """An object of a class of the solution that is a kind of plain value: with its class where that adds to it."""
        base = next((b for b in IMMUTABLE if issubclass(kind, b)), None)
        if base is not None and (_adds(kind, base) or issubclass(kind, enum.Enum)):
            plain = tuple(tuple.__iter__(value)) if base is tuple else values.plain_copy(value, kind)
            return {"p": [self.number(value), self.class_of(kind), values.encode(plain, self)]}
        if any(issubclass(kind, b) and _adds(kind, b) for b in CONTAINERS):
            return self.handle(value, kind)
        return None

    def other(self, value: Value) -> Any:
        """What is no plain value."""
        home = self.homes.get(id(value))
        if home is not None:
            return home
        if (found := self.of_prompt(value)) is not None:
            return found
        if isinstance(value, BaseException):
            return {"x": self.error(value)}
        if isinstance(value, type):
            name = value.__name__
            if value.__module__ == "builtins" and getattr(sys.modules["builtins"], name, None) is value:
                return {"g": name}
            return {"C": self.class_of(value)}
        return self.handle(value, type(value))

    def handle(self, value: Value, kind: type) -> Any:
        """An object by number, with its class and, for a dataclass, its fields."""
        number = self.number(value)
        if id(value) in self.memo:  # it holds itself
            return {"M": self.memo[id(value)]}
        self.begin(value)
        fields = self.fields(value)
        return {"h": [number, self.class_of(kind), *([] if fields is None else [fields])]}

    def class_of(self, kind: type) -> Any:
        """A class: its number, with a description where the other side has none yet."""
        number = self.number(kind)
        if number in self.described:
            return number
        self.described.add(number)
        self.new.append(number)
        mro = [c for c in type.mro(kind) if c is not object]
        own = [c for c in mro if c.__module__ == self.module.__name__]
        about: dict[str, Any] = {"n": number, "t": str(kind.__name__)[:200]}
        about["b"] = [self.class_of(c) for c in kind.__bases__ if c in own]
        about["d"] = [n for n in SPECIAL if any(vars(c).get(n) is not None for c in mro)]
        callables = types.FunctionType, staticmethod, classmethod
        about["m"] = [n for c in own for n, f in vars(c).items() if isinstance(f, callables) and n[:2] != "__"]
        if issubclass(kind, BaseException):
            about["e"] = exceptions.names_of(kind)
        elif issubclass(kind, enum.Enum):
            about["u"] = 1
        elif (params := getattr(kind, "__dataclass_params__", None)) is not None:
            own_eq = getattr(getattr(kind.__eq__, "__code__", None), "co_filename", "") != "<string>"
            found = kind.__dataclass_fields__.values()  # type: ignore[attr-defined]
            if params.eq and not own_eq:
                about["f"], about["a"] = [f.name for f in found if f.compare], [f.name for f in found]
                about["i"] = [f.name for f in found if f.init and not f.kw_only]
                about["o"] = int(params.order)
        plain = next((b for b in (*IMMUTABLE, *CONTAINERS) if issubclass(kind, b)), None)
        if plain is None and values.lookalike(kind):
            about["p"] = kind.__name__
        elif plain is not None:
            about["p"] = plain.__name__
            about["x"] = [n for n in OPERATORS if any(n in vars(c) for c in own)]
            if issubclass(kind, enum.Flag):
                about["x"] = [f"__{n}__" for n in "or ror and rand xor rxor invert contains".split()]  # noqa: SIM905
        elif "f" not in about and any("__eq__" in vars(c) for c in mro if c.__module__ != "builtins"):
            about["q"] = 1
        return about

    def error(self, err: BaseException) -> Any:
        """The message for an exception: one of the test's comes home as itself."""
        home = self.homes.get(id(err))
        if home is not None:
            return home
        kind = type(err)
        about: dict[str, Any]
        if kind.__module__ == self.module.__name__:
            about = {"c": self.class_of(kind), "h": self.number(err)}
        else:
            about = {"c": exceptions.names_of(kind)}
        about |= exceptions.described(err, self.content)
        if isinstance(cause := err.__cause__, BaseException) and cause is not err:
            about["k"] = self.error(cause)
        return about

    def tag(self, tag: str, body: Value) -> Any:
        """The thing behind a tag of the test program."""
        if tag == "h":
            value = self.objects[body]
            if hasattr(type(value), "__dataclass_params__"):
                self.touched.append(body)
            return value
        if tag == "bm":
            return getattr(self.tag("h", body[0]), body[1])
        if tag == "M":
            return self.met[body]
        if tag == "L":
            return self.shared[body[0]].value
        if tag == "k":
            return self._handed_in(body)
        if tag == "g":
            found: Any = __import__(body[0], fromlist=["x"])
            for part in body[1].split(".") if body[1] else ():
                found = getattr(found, part)
            return found
        if tag == "S":
            return self.module.__dict__[body]
        if tag == "F":
            cls: Any = self.module.__dict__[body[0]]
            # without its `__init__`, which would run the prompt's code a second time
            made = self.begin(cls.__new__(cls))
            for key, value in body[1]:
                object.__setattr__(made, key, values.decode(value, self))
            return made
        if tag == "x":
            kind, args, number, attributes = body
            cls = values.decode(kind, self)
            err = cls(*[self.read(a) for a in args])
            err.__dict__.update({n: self.read(v) for n, v in attributes})
            self.homes[id(err)] = {"k": number}
            self.handed_in[-number - 1] = err  # kept alive, as its identity is
            return err
        raise values.BadWire(tag)

    def _handed_in(self, body: list[Any]) -> Any:
        """A function of the test: one object for a number."""
        number = body[0]
        found = self.handed_in.get(number)
        if found is None:
            _, name, doc, params = body
            given = [[n, k, has, self.read(default)] for n, k, has, default in params]
            found = self.handed_in[number] = function_like(self.call_back, number, name, doc, given)
            self.homes[id(found)] = {"k": number}
        return found


def function_like(call_back: Callable[..., Any], number: int, name: str, doc: Any, params: list[list[Any]]) -> Any:
    """A function with these parameters that calls the one of the test: programs look at what they decorate."""
    heads, calls, defaults = list[str](), list[str](), {}
    for at, (param, kind, has_default, default) in enumerate(params):
        mark = {2: "*", 4: "**"}.get(kind, "")
        if kind == 3 and not any(h.startswith("*") for h in heads):
            heads.append("*")
        defaults[f"_default{at}"] = default
        heads.append(f"{mark}{param}" + (f"=_default{at}" if has_default else ""))
        calls.append(f"{param}={param}" if kind == 3 else f"{mark}{param}")
        if kind == 0 and (at + 1 == len(params) or params[at + 1][1] != 0):
            heads.append("/")
    names: dict[str, Any] = {**defaults, "_call_back": lambda *a, **k: call_back(number, a, k)}
    exec(f"def made({', '.join(heads)}): return _call_back({', '.join(calls)})", names)
    made = names["made"]
    made.__name__ = made.__qualname__ = name
    made.__doc__, made.__module__ = doc, "__main__"
    return made


def _adds(kind: type, base: type) -> bool:
    """Whether a class has public names of its own, or the fields of a named tuple, above the plain type."""
    own = type.mro(kind)[: type.mro(kind).index(base)]
    names = ("__getattr__", "__missing__", "__call__", *OPERATORS)
    return any(not n.startswith("_") or n in names for c in own for n in vars(c))
