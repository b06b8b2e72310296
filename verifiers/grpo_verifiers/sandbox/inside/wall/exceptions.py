"""Exceptions across the wall: a class by its names from the most derived one on, and what a test may read of an exception.

The test raises the nearest class of the library, or a class made here for one of the solution's, never with code of the
solution. The exceptions that end a trial itself are here as well: no handler of a test can make them undone, for the first
cause is noted at the connection.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import Any

from .values import Value

# where an exception that a test may name is at home; nothing is imported for a solution
LIBRARY = frozenset(
    """json.decoder decimal statistics re struct queue _queue zoneinfo dataclasses binascii copy csv _csv configparser zlib
    sqlite3 graphlib argparse numpy.linalg numpy.exceptions xml.etree.ElementTree""".split()  # noqa: SIM905
)
NEVER_PASSED = {"StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", "SkipTest", "Skipped"}
"""These would end a loop of the test early, or the test as passed, where the solution has kept one of the test's."""


class Stopped(BaseException):
    """The trial is over, whatever the test program still does: the first cause is noted at the connection and decides."""

    def __init__(self, link: Value, ended: str, detail: str = "") -> None:
        super().__init__(ended)
        if not link.ended:
            link.ended, link.detail = ended, detail


class Unsupported(Stopped):
    """The test program asks for what the wall does not carry. Only ever raised before anything is sent."""

    def __init__(self, link: Value, what: str) -> None:
        super().__init__(link, "not_supported", what)


class Untrusted(Stopped):
    """The test program leans on an operator of a class of the solution."""

    def __init__(self, link: Value, what: str) -> None:
        super().__init__(link, "untrusted_objects", what)


class TimeIsUp(BaseException):
    """The CPU time of the test program is spent."""


class SolutionExit(SystemExit):
    """`sys.exit` of the solution: a test may expect it, and never ends by it as passed."""


def names_of(kind: type) -> list[str]:
    """Module and name of an exception class and its bases, the most derived first. For the solution's side."""
    return [f"{c.__module__}:{c.__name__}" for c in type.mro(kind)[:-1]]


def described(err: BaseException, encode: Any) -> dict[str, Any]:
    """What of an exception crosses: arguments, text and public attributes that are plain."""

    def tried(make: Callable[[], Any]) -> list[Any]:
        try:
            return [make()]
        except Exception:  # noqa: BLE001 - what cannot be sent, or a `__str__` of the solution's own, is left out
            return []

    names = [n for n in getattr(err, "__dict__", {}) if not n.startswith("_")]
    names += [n for c in type.mro(type(err)) for n in vars(c).get("__slots__", ()) if isinstance(n, str)]
    if isinstance(err, OSError | UnicodeError | ImportError | NameError | AttributeError | SyntaxError):
        more = ("errno", "strerror", "filename", "name", "encoding", "start", "end", "msg", "lineno")
        names += [n for n in more if getattr(err, n, None) is not None]
    # in the order in which they are read: a class is described where it is first met
    args = [(tried(lambda arg=arg: encode(arg)) or [None])[0] for arg in err.args]  # type: ignore[misc]
    attributes = [[n, *found] for n in names if (found := tried(lambda n=n: encode(getattr(err, n))))]  # type: ignore[misc]
    return {"a": args, "s": (tried(lambda: str(err)) or [""])[0], "d": attributes}


def library_class(names: list[Any]) -> type[BaseException]:
    """The nearest class of the library of these names. For the test's side, where nothing is looked up but exceptions."""
    for full in names:
        module, _, name = full.partition(":")
        home = builtins if module == "builtins" else sys.modules.get(module) if module in LIBRARY else None
        found = getattr(home, name, None) if name.isidentifier() else None
        if isinstance(found, type) and issubclass(found, BaseException):
            return SolutionExit if found is SystemExit else found
    return Exception


def class_body(number: int, link: Value) -> dict[str, Any]:
    """The body of a class that represents an exception class of the solution."""

    def __getattr__(self: BaseException, name: str) -> Any:
        if name.startswith("_") or "_id" not in self.__dict__:
            raise AttributeError(name)
        return link.operate("get", self, name)

    def __str__(self: BaseException) -> str:
        said = self.__dict__.get("_text")
        return said if type(said) is str else BaseException.__str__(self)

    body = {"__module__": "solution", "_number": number, "_link": link, "_is_named": False}
    return {**body, "__str__": __str__, "__getattr__": __getattr__}


def made(kind: type[BaseException], args: list[Any], about: dict[str, Any], attributes: list[Any]) -> BaseException:
    """An exception of a class, without running a constructor of the class."""
    try:
        # these read their arguments in `__new__` or `__init__`
        reads = issubclass(kind, OSError | UnicodeError | SyntaxError | StopIteration | BaseExceptionGroup) and args
        err = type.__call__(kind, *args) if reads else kind.__new__(kind)
    except Exception:  # noqa: BLE001 - arguments that the class does not take
        err = Exception.__new__(kind) if not issubclass(kind, OSError) else OSError.__new__(kind)
    err.args = tuple(args)
    for name, value in attributes:
        if type(name) is str and name.isidentifier() and not name.startswith("_") and name != "args":
            try:
                BaseException.__setattr__(err, name, value)
            except (AttributeError, TypeError):
                continue
    if "_number" in vars(kind):
        err.__dict__.update(_text=about["s"], _id=about["h"])
    return err
