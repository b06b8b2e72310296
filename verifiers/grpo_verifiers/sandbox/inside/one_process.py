"""Solution and tests in one confined process, for rows that ask for it (`trusted_objects`).

Threads, asyncio, subclassing and the solution's own operators work as in plain Python. The verdict then rests on the
solution's own code: the report carries a number that the host made for this run, which a solution could find as well.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import traceback
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from .wall import plan, pytest_shim, trial

MAIN = unittest.TestProgram.runTests.__globals__


class OneProcess:
    """What `TestRun` asks of a connection, where there is none: the solution's own objects."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.ended, self.detail = "", ""
        self.calls, self.requests = 0, 1
        self.swallowed, self.raised = dict[str, BaseException](), list[BaseException]()
        self.functions, self.shared = list[Any](), dict[int, Any]()
        self.begun = set[types.FrameType]()

    def names(self, wanted: list[str]) -> dict[str, Any]:
        """Those of these names that the solution defines."""
        return {n: self.module.__dict__[n] for n in wanted if n in self.module.__dict__}

    def commit(self) -> None:
        """Note that the check which the caller has begun is done; nothing is kept back."""
        self.begun.discard(sys._getframe(1))

    def same(self, one: object, other: object) -> bool:
        """`is`."""
        return one is other


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """A program's code and all that is defined in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes_of(inner)


class TrustedRun(trial.TestRun):
    """A trial without a wall."""

    def __init__(self, prepared: plan.Plan, job: dict[str, Any], link: Any) -> None:
        super().__init__(prepared, job, link)
        self.own = [code for program in prepared.tests for code in codes_of(program)]

    def set_up(self) -> str:
        """The solution has run it, and its names are here."""
        return ""

    def blame(self, err: BaseException) -> None:
        """A program that fails by itself fails in plain Python, too: that is a failed test."""

    def _note(self) -> None:
        super()._note()
        self.link.begun.add(sys._getframe(1))

    def _one(self, code: types.CodeType, namespace: dict[str, Any] | None = None) -> str:
        """Run one test. One that an exception has ended inside a check, as an exit or a skip may, has not passed."""
        why = super()._one(code, namespace)
        return why or ("a check was begun and left" if self.link.begun else "")

    def run_cases(self, cases: list[tuple[Any, str]]) -> str:
        """Run methods of test cases by the real runner, which sees to what is set up for a class or a module."""
        return self._call(_run_suite, (unittest.TestSuite([case(name) for case, name in cases]),))

    def leaves(self, err: SystemExit) -> bool:
        """Whether an exit is not the test program's own: a statement of it, or `unittest.main`."""
        *_, (frame, _) = traceback.walk_tb(err.__traceback__)
        self.link.begun.discard(frame)
        return not (any(frame.f_code is code for code in self.own) or frame.f_globals is MAIN)


def _run_suite(suite: unittest.TestSuite) -> None:
    suite.run(outcome := unittest.TestResult())
    if not outcome.wasSuccessful():
        raise AssertionError([*outcome.failures, *outcome.errors, (0, "a test passed that must fail")][0][1])


def run(
    payload: dict[str, Any], out: int, module: types.ModuleType, define: Callable[[], None], find_entry: Any
) -> int:
    """Define the solution, run its tests, report; the exit status."""
    number, tests = payload.pop("number"), payload.pop("tests")
    entry, write = payload["entry"], os.write
    job = {"tests": tests, "before": payload["before"], "entry": entry, "shared": [], "stop": payload["stop"]}
    sys.modules["pytest"] = pytest_shim.module()
    try:
        prepared = plan.prepare(job)
    except plan.BrokenTests as err:
        report: dict[str, Any] = {"broken": str(err)[:300]}
    else:
        sys.modules["solution"] = module
        define()
        if entry:
            make = find_entry(module, entry)
            if make is not None:
                module.__dict__[entry] = make()
        link: Any = OneProcess(module)
        test = TrustedRun(prepared, job, link)
        test.namespace.update({n: v for n, v in module.__dict__.items() if not n.startswith("__")})
        random.seed(0)
        try:
            report = test.run(is_trusted=True)
        except plan.BrokenTests as err:
            report = {"broken": str(err)[:300]}
        report["checks"] = test.reached
        # what no test asks for, the solution has asked for
        if report.get("ended") == "not_supported" and not re.search(
            rf"{report['detail']}|from pytest", "\n".join(tests)
        ):
            report |= {"ended": "left_the_run"}
    data = json.dumps({**report, "number": number}).encode() + b"\n"
    while data:
        data = data[write(out, data) :]
    return 0
