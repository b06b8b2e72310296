"""Solution and tests in one confined process, for rows that ask for it (`trusted_objects`).

Threads, asyncio, subclassing and the solution's own operators work as in plain Python. The verdict then rests on the
solution's own code: the report carries a number that the host made for this run, which a solution could find as well.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from .wall import plan, pytest_shim, trial


class OneProcess:
    """What `TestRun` asks of a connection, where there is none: the solution's own objects."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.ended, self.detail = "", ""
        self.calls, self.requests = 0, 1
        self.swallowed, self.raised = dict[str, BaseException](), list[BaseException]()
        self.functions, self.shared = list[Any](), dict[int, Any]()

    def names(self, wanted: list[str]) -> dict[str, Any]:
        """Those of these names that the solution defines."""
        return {n: self.module.__dict__[n] for n in wanted if n in self.module.__dict__}

    def commit(self) -> None:
        """Nothing is kept back."""

    def same(self, one: object, other: object) -> bool:
        """`is`."""
        return one is other


class TrustedRun(trial.TestRun):
    """A trial without a wall."""

    def set_up(self) -> str:
        """The solution has run it, and its names are here."""
        return ""

    def blame(self, err: BaseException) -> None:
        """A program that fails by itself fails in plain Python, too: that is a failed test."""

    def leaves(self, err: SystemExit) -> bool:
        """Whether the solution has called `sys.exit`, and not the test program (`unittest.main`)."""
        frames = traceback.extract_tb(err.__traceback__)
        return bool(frames) and frames[-1].filename == "<solution>"


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
    data = json.dumps({**report, "number": number}).encode() + b"\n"
    while data:
        data = data[write(out, data) :]
    return 0
