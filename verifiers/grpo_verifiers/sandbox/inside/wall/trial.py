"""One trial: the test program with the solution's names bound, each test's outcome, and whether anything was tested at all.

Names mean the trusted thing wherever there is one: the test's own, the prompt's helpers, builtins, the standard library.
Only the entry point and what is left over come from the solution, and only what was asked for is taken, by position.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import re
import sys
import time
import types
from typing import Any

from . import pytest_shim
from .connection import Connection
from .exceptions import SolutionExit, Stopped, TimeIsUp, Unsupported
from .plan import CHECK, COMMIT, SAME, BrokenTests, Plan
from .values import Value
from .world import Surroundings

WELL_KNOWN = dict.fromkeys(("Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"), "collections")
WELL_KNOWN |= {"Fraction": "fractions", "Decimal": "decimal", "deepcopy": "copy", "isclose": "math", "sqrt": "math"}
WELL_KNOWN |= dict.fromkeys(
    ["List", "Dict", "Tuple", "Set", "Optional", "Any", "Union", "Callable", "Iterable"], "typing"
)
PACKAGES = {"np": "numpy", "pd": "pandas"}
SLEEP = time.sleep


class TestRun:
    """The state of one trial."""

    def __init__(self, plan: Plan, job: dict[str, Any], link: Value) -> None:
        self.plan, self.job, self.entry = plan, job, job["entry"]
        module = types.ModuleType("__main__")
        # classes of the test say that they come from `__main__`, and must be found there
        sys.modules["__main__"] = module
        self.namespace, self.link = module.__dict__, link
        self.missing, self.reached = set[str](), 0
        self.namespace |= {COMMIT: self.link.commit, CHECK: self._note, SAME: self.link.same}
        pytest_shim.LINK[:] = [self.link]
        time.sleep = self._sleep  # type: ignore[assignment] # a test may patch it, and then it is not asked

    def _note(self) -> None:
        self.reached += 1

    def _sleep(self, seconds: float) -> None:
        """While the test sleeps nothing of the solution is served: not where it may call a function of the test."""
        if self.link.functions:
            raise Unsupported(self.link, "threads: the test sleeps while the solution has a function of it")
        SLEEP(seconds)
        if self.link.shared:
            self.link.operate("sync")

    def run(self, *, is_trusted: bool = False) -> dict[str, Any]:
        """The results of the tests, in order, and what ended the trial.

        Raises:
            BrokenTests: the row is at fault.
        """
        random.seed("\n".join(self.job["tests"]))  # the same each time, and nothing that a solution could foresee
        results = list[str]()
        try:
            if self.plan.unsupported and not is_trusted:
                raise Unsupported(self.link, self.plan.unsupported)
            self._run(results)
        except Stopped:
            pass  # noted at the connection
        except Exception as err:
            if not self._is_raised(err):
                raise
            results.append(_reason(err))  # of the solution, where no test was running
        link = self.link
        return {"results": results, "calls": link.calls, "ended": link.ended, "detail": link.detail}

    def _run(self, results: list[str]) -> None:
        found = self._bind()
        if self.entry and self.entry not in found and self.entry not in self.namespace:
            results.append("missing_name")
            return
        if why := self.set_up():
            results.append(why)
            return
        if self.entry in found:  # whatever the setup imports under that name, the solution is under test
            self.namespace[self.entry] = self.namespace["candidate"]
        for code in self.plan.tests:
            before = self.reached
            why = self._one(code)
            if not why and not (self.plan.starts_itself and self.reached > before):
                why = self._start()
            # a test that decides nothing pays nothing: the solution may have led around all of its checks
            if not why and self.reached == before:
                if not self.link.requests:
                    raise BrokenTests("no test of the program is ever run")
                why = "no check was reached"
            if not why and self.link.swallowed:
                why = "a check failed in the hands of the solution, and the test did not hear of it"
            if self.link.ended:  # also where the test has caught it
                return
            results.append(why)
            if why and self.job["stop"]:
                return

    def set_up(self) -> str:
        """The row's setup and the prompt's helpers; they may use what the solution defines."""
        try:
            exec(self.plan.before, self.namespace)
        except Exception as err:
            # the solution had a hand in it; else the row's own setup is at fault, and no completion can be blamed
            if self.link.requests or self._is_raised(err) or _lacks(err) in self.missing:
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
        sys.modules["solution"] = getattr(self.link, "module", None) or SolutionModule(self.link)
        return set(found)

    def _one(self, code: types.CodeType, namespace: dict[str, Any] | None = None) -> str:
        """Run one test; what went wrong, or nothing. Its own sys.exit(0) (unittest.main) is a success, the solution's is not."""
        try:
            exec(code, self.namespace if namespace is None else namespace)
        except SystemExit as err:
            if self.leaves(err):
                raise Stopped(self.link, "left_the_run", "SystemExit") from None
            return "" if not err.code else "the tests failed"
        except (Stopped, TimeIsUp, BrokenTests):
            raise
        except BaseException as err:
            if self.link.ended:
                raise Stopped(self.link, "over") from err
            self.blame(err)
            return _reason(err)
        return ""

    def leaves(self, err: SystemExit) -> bool:
        """Whether an exit is the solution's: here that one has a class of its own."""
        return isinstance(err, SolutionExit)

    def blame(self, err: BaseException) -> None:
        """Raise BrokenTests if a test failed by itself, whatever the solution is."""
        if self._is_raised(err) or isinstance(err, AssertionError):
            return
        lacking = _lacks(err)
        broken = isinstance(err, ImportError) or not (self.link.requests or self.missing)
        if broken or (lacking in self.missing and lacking in self.plan.only_read):
            raise BrokenTests(f"the tests fail by themselves: {_reason(err)}") from err

    def _is_raised(self, err: BaseException | None) -> bool:
        """Whether an exception, or one that it was raised from, is one that the solution raised."""
        while err is not None:
            if any(e is err for e in self.link.raised):
                return True
            err = err.__cause__ or err.__context__
        return False

    def _start(self) -> str:
        """Start a program that only defines its tests: `check(candidate)`, unittest cases, what pytest would collect."""
        check = self.namespace.get("check")
        if isinstance(check, types.FunctionType):
            needed = check.__code__.co_argcount - len(check.__defaults__ or ())
            if needed > 1:
                raise BrokenTests("`check` wants more than the candidate")
            return self._call(check, (self.namespace[self.entry],) if check.__code__.co_argcount and self.entry else ())
        if "unittest" in sys.modules and (cases := pytest_shim.unittest_cases(self.namespace)):
            return self.run_cases(cases)
        return next((why for test in list(pytest_shim.collect(self.namespace)) if (why := self._call(test, ()))), "")

    def run_cases(self, cases: list[tuple[Any, str]]) -> str:
        """Run methods of test cases; what went wrong first, or nothing."""
        return next((why for case in cases if (why := self._call(pytest_shim.run_case, case))), "")

    def _call(self, function: object, args: tuple[Any, ...]) -> str:
        return self._one(CALLING, {"f": function, "a": args, "commit": self.link.commit})


def run(plan: Plan, job: dict[str, Any], channel: int) -> dict[str, Any]:
    """One solution behind a channel against a prepared test program."""
    world = Surroundings(has_files=plan.has_files, has_random=plan.has_random)
    test = TestRun(plan, job, link := Connection(channel, plan.shared, world))
    link.namespace, link.expects_stop = test.namespace, plan.expects_stop
    return test.run()


CALLING = compile("f(*a)\ncommit()", "<tests>", "exec")


class SolutionModule(types.ModuleType):
    """The module `solution` of test programs that import from it: each name is asked of the solution."""

    def __init__(self, link: Connection) -> None:
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

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            raise Unsupported(self._link, "mock.patch of solution")
        super().__setattr__(name, value)


def _from_library(name: str, namespace: dict[str, Any], text: str) -> bool:
    """Whether a missing name is one of the library's; then it is bound, or stays missing, but is never the solution's."""
    if name in WELL_KNOWN:
        namespace[name] = getattr(importlib.import_module(WELL_KNOWN[name]), name)
        return True
    full = PACKAGES.get(name, name)
    if full not in sys.stdlib_module_names and full not in ("numpy", "pandas", "pytest"):
        return False
    with contextlib.suppress(ImportError):
        module = importlib.import_module(full)
        inner = getattr(module, name, None)
        # `datetime.now()` and `copy(x)` call what the module has under that name
        uses = re.findall(rf"(?<![\w.]){name}(\.\w+|\()", text) if inner is not None else []
        is_inner = uses and all(u == "(" or not hasattr(module, u[1:]) for u in uses)
        namespace[name] = inner if is_inner else module
    return True


def _lacks(err: BaseException) -> str | None:
    """The name that a NameError is about."""
    return err.name if isinstance(err, NameError) else None


def _reason(err: BaseException) -> str:
    # nothing of a solution is asked for its text here: `__repr__` would be code of its own
    args = [a for a in err.args if type(a) in (str, int, float, bool)]
    return f"{type(err).__name__}: {args[0]!r}"[:200] if args else type(err).__name__
