"""Answers to what the solution asks of the test program's things: calls, steps, attributes, input."""

from __future__ import annotations

import builtins
import copy
import inspect
import sys
import threading
import types
from typing import Any

from ..wire import Parts
from ..writing import hides
from .ends import Connection, Stopped, TimeIsUp
from .lendable import SPECIAL, is_lendable


class Answers:
    """What of a thing that has been lent may be reached, and what came of it."""

    def __init__(self, link: Connection) -> None:
        self.link = link

    def attribute(self, target: object, name: str) -> Any:
        """What a solution may see of a test's object: its own data and what its class defines, but for the library's mocks."""
        kind = type(target)
        is_own = kind.__module__ == "__main__" or (isinstance(target, type) and target.__module__ == "__main__")
        # from `__class__` or `__globals__` it is two steps to everything that the test has
        if type(name) is not str or name.startswith("__" if is_own else "_"):
            raise AttributeError(name)
        if isinstance(target, type) or (is_own and isinstance(target, BaseException)):
            if not is_own:
                raise AttributeError(name)
            return getattr(target, name)
        if kind.__module__ == "unittest.mock":
            # a mock's records are what the test will check: they are not for the solution to read or reset
            if hasattr(kind, name) or name.startswith("assert") or "called" in name:
                raise AttributeError(name)
            return getattr(target, name)
        if not is_own and not is_lendable(kind):
            if isinstance(target, types.FunctionType) and name in vars(target):
                return vars(target)[name]
            raise AttributeError(name)
        found = getattr(target, name)
        if isinstance(found, types.MethodType | types.BuiltinMethodType) or not callable(found):
            return found
        if name in getattr(target, "__dict__", {}) or isinstance(found, types.FunctionType):
            return found
        raise AttributeError(name)

    def set_attribute(self, target: object, name: str, value: object) -> None:
        """Set data of a test's object, never what its class defines."""
        # a method that were replaced would run in the test's process
        if type(target).__module__ != "__main__" or name.startswith("__") or hides(type(target), name):
            raise AttributeError(name)
        setattr(target, name, value)

    def answer(self, request: Parts) -> list[Any]:
        """What the solution asked of a function, iterator or stream of the test."""
        try:
            if request[0] == "input":
                return ["ret", str(builtins.input(str(request[1])))]
            if request[0] == "warn":
                warn(request[1], str(request[2]))
                return ["ret", None]
            if request[0] == "stdin":
                return ["ret", str(sys.stdin.read() if request[1] == "read" else sys.stdin.readline())]
            found = self._asked_of(request[0], self.link.lender.lent[request[1]], request[2:])
            self.link.checks.answer(request)
            return ["ret", self.link.encode(found)]
        except StopIteration as end:
            return ["stop", self.link.encode(end.value)]
        # these end the trial and are no answer
        except (Stopped, TimeIsUp):
            raise
        except BaseException as err:  # noqa: BLE001 - an error in the test's own callback belongs to the caller
            # a failed check that the solution now holds: if it keeps it to itself the trial is not passed
            self.link.checks.take(err, request)
            return ["exc", self.link.lender.error(err)]

    def _asked_of(self, kind: str, target: Any, rest: list[Any]) -> Any:
        if kind == "next":
            return next(target)
        if kind == "get":
            return self.attribute(target, rest[0])
        if kind == "set":
            return self.set_attribute(target, rest[0], self.link.decode(rest[1]))
        if kind == "special":
            return special(target, rest[0], [self.link.decode(a) for a in rest[1]])
        if kind == "stream":
            return _step(target, rest[0], [self.link.decode(a) for a in rest[1]])
        if kind in ("copy", "deepcopy"):
            return copied(target, kind)
        if kind == "run":
            return self.run(target)
        args = [self.link.decode(a) for a in rest[0]]
        return target(*args, **self.link.decode(rest[1]))

    def run(self, coroutine: types.CoroutineType[Any, Any, Any]) -> Any:
        """The outcome of a coroutine of the test that the solution awaits: run beside the loop that waits for the solution."""
        import asyncio

        out: list[Any] = []
        exchange = self.link.exchange
        waiting = exchange.current()

        def work() -> None:
            # this thread waits for that one, which has its solution's thread for as long
            exchange.adopt(waiting)
            try:
                out.append((True, asyncio.run(coroutine)))
            except BaseException as err:  # noqa: BLE001 - raised again where it is waited for
                out.append((False, err))

        # the test's loop runs in this thread already, and a loop cannot be run within another
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        good, value = out[0]
        if not good:
            raise value
        return value


async def _step(stream: types.AsyncGeneratorType[Any, Any], how: str, args: list[Any]) -> Any:
    """A step of an asynchronous generator of the test, to be awaited."""
    steps: dict[str, Any] = {"asend": stream.asend, "athrow": stream.athrow, "aclose": stream.aclose}
    return await steps[how](*args)


def copied(target: object, how: str) -> Any:
    """A copy of an object of the test."""
    kind = type(target)
    # a copy of a mock would have a record that the test does not look at
    if kind.__module__ != "__main__" and (not is_lendable(kind) or kind.__module__ == "unittest.mock"):
        raise TypeError(f"a {kind.__name__} of the test cannot be copied")
    return getattr(copy, how)(target)


def special(target: object, name: str, args: list[Any]) -> Any:
    """A special method of an object of the test."""
    # a list of what may be called: `__reduce__` and its like make anything
    if name not in SPECIAL:
        raise AttributeError(name)
    # of the class, as Python looks special methods up, without running a descriptor
    found = inspect.getattr_static(type(target), name)
    return found(target, *args)


def warn(names: Parts, message: str) -> None:
    """A warning of the solution, under the filters of the test."""
    import warnings

    found = (getattr(builtins, str(n).rpartition(".")[2], None) for n in names)
    kinds = [c for c in found if isinstance(c, type) and issubclass(c, Warning)]
    warnings.warn(message, kinds[0] if kinds else UserWarning, stacklevel=2)
