"""What the test hands to the solution: its functions by number, its exceptions, the library's things by name.

All else that is no plain value is not carried, and said so before anything is sent.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import types
from typing import Any

from . import values
from .proxies import BoundMethod, PlainProxy, Proxy
from .values import Value
from .write_back import SharingCoder

FUNCTIONS: tuple[Any, ...] = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
FUNCTIONS += (operator.itemgetter, operator.attrgetter, operator.methodcaller, type(functools.lru_cache(len)))
FUNCTIONS += (types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType)
BOUND = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


class HandedOver(SharingCoder):
    """Encodes the values of the test; `sent` are the objects of the solution that the current request names."""

    def __init__(self, classes: frozenset[str]) -> None:
        super().__init__(classes, {})
        self.functions, self.sent, self.described = list[Any](), set[int](), set[int]()

    def other(self, value: Value) -> Any:
        """What is no plain value of the test.

        Raises:
            NotPlain: it is not carried.
        """
        kind: Any = type(value)
        if isinstance(value, Proxy):
            self.sent.add(value._id)
            return {"h": value._id}
        if isinstance(value, type) and "_number" in vars(value):
            return {"h": vars(value)["_number"]}
        if kind is BoundMethod:
            self.sent.add(value.__self__._id)
            return {"bm": [value.__self__._id, value.__name__]}
        if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in sys.stdlib_module_names:
            return {"g": [value.__name__, ""]}
        named = self._library_name(value, kind)
        if named is not None:
            return {"g": named}
        if isinstance(value, BaseException):
            return self._error(value)
        if kind.__module__.startswith("unittest.mock"):
            raise values.NotPlain("mock")
        if (found := self.of_prompt(value)) is not None:
            return found
        if isinstance(value, type):
            raise values.NotPlain("a class of the test")
        if isinstance(value, FUNCTIONS) or (kind.__module__ == "functools" and callable(value)):
            number = self.number_of(value)
            if number in self.described:
                return {"k": [number]}
            about = self._about(value)
            self.described.add(number)
            return {"k": [number, *about]}
        raise values.NotPlain("an object of the test" if kind.__module__ == "__main__" else f"a {kind.__name__}")

    def subclass(self, value: Value, kind: type) -> Any:
        """Values of classes that represent the solution's own kinds of plain values."""
        if isinstance(value, PlainProxy):
            return {"h": value.__dict__["_id"]}
        # a kind of list, dict or int that the test defines is sent as the plain value, if the class adds nothing
        return None

    def _error(self, err: BaseException) -> Any:
        if "_id" in err.__dict__:
            return {"h": err.__dict__["_id"]}
        attributes = [[n, self._lenient(v)] for n, v in vars(err).items() if not n.startswith("_")]
        args = [self._lenient(a) for a in err.args]
        return {"x": [values.encode(type(err), self), args, self.number_of(err), attributes]}

    def _lenient(self, value: object) -> Any:
        try:
            return self.content(value)
        except (values.NotPlain, RecursionError):
            self.described.clear()  # what was described in it is not sent
            return None

    def _about(self, function: Value) -> list[Any]:
        """Name, doc and parameters of a function of the test."""
        name = getattr(function, "__name__", "function")
        doc = getattr(function, "__doc__", None)
        try:
            found = list(inspect.signature(function).parameters.values())
        except (ValueError, TypeError):
            found = [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]
        params = [
            [p.name, int(p.kind), p.default is not p.empty, None if p.default is p.empty else self._lenient(p.default)]
            for p in found
        ]
        return [name if name.isidentifier() else "function", doc if type(doc) is str else None, params]

    def number_of(self, value: Value) -> int:
        """The number of something of the test that the solution may call or raise."""
        for number, found in enumerate(self.functions):
            # bound methods are made anew at each look, and are equal where they are one
            is_bound = isinstance(value, BOUND) and type(found) is type(value)
            if found is value or (is_bound and found.__self__ is value.__self__ and found == value):
                return number
        self.functions.append(value)
        return len(self.functions) - 1

    def _library_name(self, value: Value, kind: type) -> list[str] | None:
        """Module and name of a class or function of the standard library, which both sides have."""
        if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            return None
        module, name = getattr(value, "__module__", None) or "builtins", getattr(value, "__qualname__", "")
        if (
            module.split(".")[0] not in sys.stdlib_module_names
            or module in ("__main__", "inside")
            or not name.isidentifier()
        ):
            return None
        # a test's own thing may carry a name of the library: what stands under it must be this very object
        return [module, name] if getattr(sys.modules.get(module), name, None) is value else None
