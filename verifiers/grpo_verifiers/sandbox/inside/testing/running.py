"""One trial: the test program with the solution's names bound, each test's verdict, and whether anything was tested at all.

Names mean the trusted thing wherever there is one: the test's own, the prompt's helpers, builtins, the standard library.
Only the entry point and what is left over come from the solution, and only what was asked for is taken, by position.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import re
import sys
import threading
import types
from typing import Any

from . import likeness
from .ends import SolutionExit, Stopped, TimeIsUp
from .link import Link
from .plans import ANY, CHECK, COMMIT, SAME, BrokenTests, PreparedTests

WELL_KNOWN = {
    "Counter": "collections",
    "OrderedDict": "collections",
    "defaultdict": "collections",
    "deque": "collections",
    "namedtuple": "collections",
    "Fraction": "fractions",
    "Decimal": "decimal",
    "deepcopy": "copy",
    "isclose": "math",
    "sqrt": "math",
    "np": "numpy",
    "pd": "pandas",
}
WELL_KNOWN |= dict.fromkeys(
    ("List", "Dict", "Tuple", "Set", "Optional", "Any", "Union", "Callable", "Iterable"), "typing"
)


class TestRun:
    """The state of one trial."""

    def __init__(self, plan: PreparedTests, job: dict[str, Any], channel: int) -> None:
        self.plan, self.job, self.entry, self.stops = plan, job, job["entry"], job["stop"]
        self.module = types.ModuleType("__main__")
        # classes of the test say that they come from `__main__`, and must be found there
        sys.modules["__main__"] = self.module
        self.namespace = self.module.__dict__
        self.link = Link(channel, self.namespace, plan.shared, job["trusted"])
        self.link.lender.has_files, self.link.lender.has_random = plan.has_files, plan.has_random
        self.link.raiser.expects_stop = plan.expects_stop
        self.missing: set[str] = set()
        self.checks = self.link.checks
        self.checks.tests = plan.tests
        self.namespace[COMMIT], self.namespace[CHECK] = self.link.statements.commit, self.checks.note
        self.namespace[SAME], self.namespace[ANY] = self.link.returned.is_same, BaseException
        self._say, threading.excepthook = threading.excepthook, self._end_thread

    def run(self) -> dict[str, Any]:
        """The results of the tests, in order.

        Raises:
            BrokenTests: the row is at fault.
        """
        random.seed("\n".join(self.job["tests"]))  # the same each time, and nothing that a solution could foresee
        try:
            found = self._bind()
        except Stopped:
            return {"results": ["gone"], "calls": 0, "dead": True}
        if self.entry and self.entry not in found and self.entry not in self.namespace:
            return {"results": ["no entry point"], "calls": 0, "dead": False}
        why = self._set_up()
        if self.entry in found:  # whatever the setup imports under that name, the solution is under test
            self.namespace[self.entry] = self.namespace["candidate"]
        results: list[str] = [why] if why else []
        for code in self.plan.tests if not why else ():
            before = self.checks.reached
            why = self._one(code)
            if not why and not (self.plan.starts_itself and self.checks.reached > before):
                why = self._start()
            # a test that decides nothing pays nothing: the solution may have led around all of its checks
            if not why and self.checks.reached == before and not self.link.is_dead:
                why = self._nothing_tested()
            why = why or self._swallowed()
            results.append(why)
            if (why and self.stops) or self.link.is_dead:
                break
        return {
            "results": results,
            "calls": self.link.calls,
            "dead": self.link.is_dead,
            "untrusted": self.link.untrusted,
        }

    def _end_thread(self, ended: threading.ExceptHookArgs) -> None:
        """A thread of the test has ended by an exception, which nobody else will hear of."""
        if ended.exc_value is not None:
            self.checks.end_thread(ended.exc_value, self.link.raiser.is_known(ended.exc_value))
        self._say(ended)

    def _swallowed(self) -> str:
        """A check failed, and the solution let nobody know."""
        return "a check failed or was left undone, and the test did not hear of it" if self.checks.taken else ""

    def _nothing_tested(self) -> str:
        """No check was reached: the row's fault if the solution was not even asked, else the solution led around it."""
        if not self.link.asked:
            raise BrokenTests("no test of the program is ever run")
        return "no check was reached"

    def _set_up(self) -> str:
        """The row's setup and the prompt's helpers; they may use what the solution defines."""
        try:
            exec(self.plan.before, self.namespace)
        except Stopped as err:
            return f"the solution ended: {err}"[:200]
        except Exception as err:
            # the solution had a hand in it; else the row's own setup is at fault, and no completion can be blamed
            if self.link.asked or self.link.raiser.is_known(err) or _lacks(err) in self.missing:
                return f"the setup fails: {_reason(err)}"
            raise BrokenTests(f"the setup fails: {_reason(err)}") from err
        return ""

    def _bind(self) -> set[str]:
        """Give the program its missing names: standard library first, the solution last; the entry point is the solution's."""
        text = "\n".join(self.job["tests"])
        free = [n for n in self.plan.free if n != self.entry]
        wanted = [n for n in free if not _from_library(n, self.namespace, text)]
        if self.entry:
            wanted.append(self.entry)
        found = self.link.names(wanted)
        self.namespace.update(found)
        self.missing = set(wanted) - set(found)
        if self.entry and self.entry in found:
            self.namespace["candidate"] = found[self.entry]
        sys.modules["solution"] = SolutionModule(self.link)
        return set(found)

    def _one(self, code: types.CodeType, namespace: dict[str, Any] | None = None) -> str:
        """Run one test; what went wrong, or nothing. Its own sys.exit(0) (unittest.main) is a success, the solution's is not."""
        try:
            exec(code, self.namespace if namespace is None else namespace)
        # before SystemExit, which it is: a solution that leaves must not look like `unittest.main` at its end
        except SolutionExit:
            return "SystemExit in the solution"
        except SystemExit as err:
            return "" if not err.code else "the tests failed"
        except Stopped as err:
            return f"the solution ended: {err}"[:200]
        except (TimeIsUp, BrokenTests):
            raise
        except BaseException as err:  # noqa: BLE001 - whatever a test raises is its verdict
            self._blame(err)
            return _reason(err)
        return ""

    def _blame(self, err: BaseException) -> None:
        """Raise BrokenTests if a test failed by itself, whatever the solution is."""
        if self.link.raiser.is_known(err) or isinstance(err, AssertionError):
            return
        lacking = _lacks(err)
        broken = isinstance(err, ImportError) or not (self.link.asked or self.link.native or self.missing)
        if broken or (lacking in self.missing and lacking in self.plan.only_read):
            raise BrokenTests(f"the tests fail by themselves: {_reason(err)}") from err

    def _start(self) -> str:
        """Start a program that only defines its tests: `check(candidate)`, unittest cases, what pytest would collect."""
        check = self.namespace.get("check")
        if isinstance(check, types.FunctionType):
            needed = check.__code__.co_argcount - len(check.__defaults__ or ())
            if needed > 1:
                raise BrokenTests("`check` wants more than the candidate")
            return self.call(check, (self.namespace[self.entry],) if check.__code__.co_argcount and self.entry else ())
        if "unittest" in sys.modules:
            why = self._unittest()
            if why is not None:
                return why
        for test in likeness.collect(self.namespace):
            why = self.call(test, ())
            if why:
                return why
        return ""

    def _unittest(self) -> str | None:
        import unittest

        cases = [
            v
            for v in self.namespace.values()
            if isinstance(v, type) and issubclass(v, unittest.TestCase) and v.__module__ == "__main__"
        ]
        if not cases:
            return None
        suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(c) for c in cases)
        outcome = unittest.TestResult()
        suite.run(outcome)
        if not outcome.testsRun and outcome.wasSuccessful():
            raise BrokenTests("its test cases have no test method")
        # where all of them were skipped nothing was tested
        good = outcome.wasSuccessful() and outcome.testsRun > 0 and len(outcome.skipped) < outcome.testsRun
        return "" if good else "a test case failed"

    def call(self, function: object, args: tuple[Any, ...]) -> str:
        """Call a function of the test program; what went wrong, or nothing."""
        code = compile("f(*a)\ncommit()", "<tests>", "exec")
        return self._one(code, {"f": function, "a": args, "commit": self.link.statements.commit})


class SolutionModule(types.ModuleType):
    """The module `solution` of test programs that import from it: each name is asked of the solution."""

    def __init__(self, link: Link) -> None:
        super().__init__("solution")
        self._link = link

    def __getattr__(self, name: str) -> Any:
        # the import system asks for these, and what the solution says of them would be believed
        if name.startswith("__"):
            raise AttributeError(name)
        found = self._link.names([name])
        if name not in found:
            raise AttributeError(name)
        return found[name]


def run(plan: PreparedTests, job: dict[str, Any], channel: int) -> dict[str, Any]:
    """One solution against a prepared test program."""
    return TestRun(plan, job, channel).run()


def _from_library(name: str, namespace: dict[str, Any], text: str) -> bool:
    """Whether a missing name is one of the library's; then it is bound, or stays missing, but is never the solution's."""
    if name in WELL_KNOWN:
        home = WELL_KNOWN[name]
        try:
            module = importlib.import_module(home)
        except ImportError:
            return True
        namespace[name] = module if name in ("np", "pd") else getattr(module, name)
        return True
    if name in sys.stdlib_module_names or name in ("numpy", "pandas", "pytest"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            inner = getattr(module, name, None)
            # `datetime.now()` and `copy(x)` are meant of what stands in the module under its own name
            uses = re.findall(rf"(?<![\w.]){name}(\.\w+|\()", text) if inner is not None else []
            is_inner = uses and all(u == "(" or not hasattr(module, u[1:]) for u in uses)
            namespace[name] = inner if is_inner else module
        return True
    return False


def _lacks(err: BaseException) -> str | None:
    """The name that a NameError is about."""
    return err.name if isinstance(err, NameError) else None


def _reason(err: BaseException) -> str:
    # nothing of a solution is asked for its text here: `__repr__` would be code of its own
    args = [a for a in err.args if type(a) in (str, int, float, bool)]
    return f"{type(err).__name__}: {args[0]!r}"[:200] if args else type(err).__name__
