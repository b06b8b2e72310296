"""Exceptions of the solution, as the test program sees them raised."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from ..wire import BadWire, Fields, Parts
from .ends import Connection, SolutionExit, Stopped
from .mirrored.handles import DerivingMeta, is_nameable, stub
from .mirrored.natives import add_members

# StopIteration would end a test's own loop early, SystemExit the test itself, SkipTest would pass it
NEVER_RAISED = frozenset({"StopIteration", "StopAsyncIteration", "GeneratorExit"})
NEVER_PASSED = frozenset(
    ["StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", "SkipTest", "Skipped", "BrokenTests"]
)
STEPS = {"next": "StopIteration", "send": "StopIteration", "throw": "StopIteration", "costep": "StopAsyncIteration"}
STD_EXCEPTIONS = frozenset(
    [
        "json.decoder",
        "decimal",
        "statistics",
        "re",
        "struct",
        "queue",
        "_queue",
        "zoneinfo",
        "dataclasses",
        "binascii",
        "copy",
        "csv",
        "_csv",
        "configparser",
        "asyncio",
        "asyncio.exceptions",
        "concurrent.futures",
        "concurrent.futures._base",
        "concurrent.futures.thread",
        "zlib",
        "sqlite3",
        "socket",
        "ast",
        "graphlib",
        "locale",
        "getopt",
        "argparse",
        "email.errors",
        "html.parser",
        "xml.etree.ElementTree",
        "numpy.linalg",
        "tokenize",
    ]
)


class ExceptionMeta(DerivingMeta):
    """The class of classes that stand for the solution's exceptions: calling one makes an exception there."""

    def __getattr__(cls, name: str) -> Any:
        if "_class_number" not in vars(cls) or name.startswith("__"):
            raise AttributeError(name)
        found = vars(cls)["_class_link"].ask("get", {"k": vars(cls)["_class_number"]}, name)
        if not is_nameable(found):
            raise AttributeError(name)
        return found

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        if "_class_number" not in vars(cls):
            return super().__call__(*args, **kwargs)
        return vars(cls)["_class_link"].construct(cls, args, kwargs)


class RaisedErrors:
    """Builds exceptions; remembers which ones came from the solution."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.expects_stop = False  # the test names StopIteration: it may end its own loops by one
        self.made: list[BaseException] = []
        self.known: dict[int, BaseException] = {}

    def is_known(self, err: BaseException) -> bool:
        """Whether an exception, or one that it was raised from, is one that the solution raised."""
        seen: BaseException | None = err
        while seen is not None:
            if any(e is seen for e in self.made):
                return True
            # a test that wraps what it caught still failed by the solution
            seen = seen.__cause__ or seen.__context__
        return False

    def exception(self, about: Fields, request: str) -> BaseException:
        """The exception behind a message."""
        if "tx" in about:
            return self._own(about["tx"])
        if about.get("n") in self.known:
            return self._now(self.known[about["n"]], about)
        names = [n.rpartition(".")[2] for n in about["e"]]
        values = [self.link.decode(a) for a in about["args"]]
        # the end of an iterator that was asked for its next item is no error
        if STEPS.get(request, "-") in names:
            step: Any = StopIteration if "StopIteration" in names else StopAsyncIteration
            end: BaseException = step(*values)
            return end
        made: BaseException
        if "Exception" not in names and request != "value":
            # classes of their own: `sys.exit(0)` of a solution must not end the test as passed, and what is no Exception
            # would go past the test's own handlers
            made = SolutionExit(*values) if "SystemExit" in names else Stopped(str(about["t"])[:100])
            self.link.checks.leave(made)
        elif "Exception" not in names:
            made = Exception(*values)
        else:
            made = self._plain(about, names, values)
        self.made.append(made)
        return made

    def _now(self, err: BaseException, about: Fields) -> BaseException:
        """An exception that is known, with what it has to say now: it may have been told of while it was being made."""
        if (args := tuple(self.link.decode(a) for a in about["args"])) != err.args:
            err.args = args
        if type(about.get("s")) is str:
            err.__dict__["_said"] = about["s"]
        return err

    def _own(self, number: object) -> BaseException:
        """An exception that the test has made, back from the solution: that one, but for those that would end the test."""
        err: object = self.link.lender.lent[number]
        if not isinstance(err, BaseException):
            raise BadWire("no exception")
        is_free = isinstance(err, Exception) or type(err).__module__ == "__main__"
        if not is_free or any(c.__name__ in NEVER_PASSED for c in type(err).__mro__):
            err = Stopped(type(err).__name__)
        self.link.checks.give_back(err)
        return err

    def _plain(self, about: Fields, names: list[str], values: list[Any]) -> BaseException:
        if self.expects_stop and names[:1] == ["StopIteration"]:
            return StopIteration(*values)
        cls: Any = self.link.mirrors.cls(about["c"]) if "c" in about else standard(about["e"])
        if issubclass(cls, BaseExceptionGroup):
            made: BaseException = cls.__new__(cls, *values)
        else:
            made = cls.__new__(cls, *values) if "OSError" in names else cls.__new__(cls)
        made.args = tuple(values)
        if "n" in about:
            made.__dict__["_number"] = about["n"]
            self.known[about["n"]] = made
        elif "OSError" in names and len(values) >= 2:
            made.__init__(*values)  # type: ignore[misc]
        for name, value in about.get("a", ()):
            if type(name) is str and name.isidentifier() and not name.startswith("_") and name != "args":
                # an OSError that is told that it has no file says so
                if value is None and getattr(type(made), name, None) is not None and getattr(made, name) is None:
                    continue
                try:
                    BaseException.__setattr__(made, name, self.link.decode(value))
                except (AttributeError, TypeError):
                    continue
        if type(about.get("s")) is str:
            made.__dict__["_said"] = about["s"]
        for note in about.get("notes", ()):
            made.add_note(str(note))
        if "cause" in about:
            made.__cause__ = self.exception(about["cause"], "value")
        elif "context" in about:
            made.__context__ = self.exception(about["context"], "value")
        return made

    def cls(self, about: Fields) -> type[BaseException]:
        """The class that stands for an exception class of the solution."""
        own = [self.link.mirrors.cls(b) for b in about["b"]]
        parents = [b for b in own if isinstance(b, type) and issubclass(b, BaseException)]
        base = standard(about["e"])
        if not any(issubclass(p, base) for p in parents):
            parents.append(base)
        link = self.link

        def __getattr__(self: BaseException, name: str) -> Any:
            if name.startswith("_") or "_number" not in self.__dict__:
                raise AttributeError(name)
            return link.ask("get", {"k": self.__dict__["_number"]}, name)

        def __setattr__(self: BaseException, name: str, value: object) -> None:
            BaseException.__setattr__(self, name, value)
            if not name.startswith("_") and "_number" in self.__dict__:
                link.ask("set", {"k": self.__dict__["_number"]}, name, link.encode(value))

        def __str__(self: BaseException) -> str:
            said = self.__dict__.get("_said")
            return said if type(said) is str else _text(self)

        body = {
            "_class_number": about["n"],
            "_class_link": link,
            "__module__": "solution",
            "__qualname__": str(about["q"])[:100],
            "__doc__": about["d"] if type(about["d"]) is str else None,
            "__getattr__": __getattr__,
            "__setattr__": __setattr__,
            "__str__": __str__,
        }
        # for `super().__init__()` in a class of the test; those made here are made without it
        if any(m[0] == "__init__" for m in about["m"]):
            body["__init__"] = stub(link, about["n"], "__init__", None)
        meta: Any = ExceptionMeta if all(type(p) in (type, ExceptionMeta) for p in parents) else type(parents[0])
        made: type[BaseException] = meta(str(about["t"])[:100], tuple(parents), body)
        add_members(link, made, about)
        return made


def _text(err: BaseException) -> str:
    return "" if not err.args else str(err.args[0]) if len(err.args) == 1 else str(err.args)


def standard(names: Parts) -> type[BaseException]:
    """The nearest standard exception class of these names that a test may see raised."""
    for full in names:
        module, _, name = full.rpartition(".")
        if name in NEVER_RAISED:
            return RuntimeError
        if module != "builtins" and module not in STD_EXCEPTIONS:
            continue  # unittest.SkipTest would pass a test case
        if module not in sys.modules and module != "builtins":
            __import__(module)
        found = getattr(builtins if module == "builtins" else sys.modules.get(module), name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return Exception
