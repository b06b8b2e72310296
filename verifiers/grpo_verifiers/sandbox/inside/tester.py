"""Runs test programs that are more than calls and literals. Trusted, kept warm, never in one process with a solution.

Names mean the trusted thing wherever there is one: the test's own, the prompt's helpers, builtins, the standard library.
Only what is left over comes from the solution.
"""

from __future__ import annotations

import _socket
import ast
import builtins
import contextlib
import gc
import importlib
import json
import os
import random
import resource
import signal
import symtable
import sys
import time
import types
from dataclasses import dataclass
from typing import Any

from . import likeness
from .frames import receive_files, wipe
from .handles import Link, SolutionExit, Stopped
from .kernel import seccomp

MEMORY_MB = 2048
CACHED = 128
COMMIT = "__commit__"
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


@dataclass(frozen=True, slots=True)
class PreparedTests:
    """A test program made ready once: code of each test, names it cannot resolve itself, how it is to be started."""

    before: types.CodeType
    tests: tuple[types.CodeType, ...]
    free: tuple[str, ...]
    starts_itself: bool
    shared: frozenset[str]


def serve(control: _socket.socket, program: seccomp.Program, notes: dict[str, Any]) -> None:
    """Run test programs one after another; returns when the host has hung up."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
    signal.signal(signal.SIGPROF, clock.ring)
    program.install(os.getpid())
    gc.unfreeze()
    gc.enable()
    sys.modules.setdefault("pytest", likeness.module())
    plans: dict[bytes, PreparedTests] = {}
    control.send(json.dumps({"ready": notes}).encode())
    while True:
        message, fds = receive_files(control)
        if not message:
            return
        asked = json.loads(message)
        if asked.get("op") != "test":
            continue
        _limit_time(asked["cpu_s"])
        source, channel = fds
        text = os.pread(source, os.fstat(source).st_size, 0)
        os.close(source)
        started = time.process_time()
        try:
            plan = plans.get(text)
            if plan is None:
                if len(plans) >= CACHED:
                    plans.clear()
                plan = plans[text] = prepare(json.loads(text))
            answer = run(plan, json.loads(text), channel)
        except BrokenTests as err:
            answer = {"broken": str(err)[:300]}
        except TimeIsUp:
            answer = {"results": ["time"], "calls": 0, "dead": False, "late": True}
        except Exception as err:  # noqa: BLE001 - no reply may take this process down, to hide in `error`
            answer = {"results": [f"bad reply: {type(err).__name__}"], "calls": 0, "dead": True}
        clock.is_armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.close(channel)
        if notes["tier"] == "namespaces":
            wipe("/tmp")
        answer["results"] = [why if i < 20 else why[:20] for i, why in enumerate(answer.get("results", []))]
        answer["cpu"] = time.process_time() - started
        control.send(json.dumps(answer).encode())


class BrokenTests(Exception):
    """The tests themselves cannot be run: a fault of the row."""


class TimeIsUp(BaseException):
    """The test program used up its CPU time."""


@dataclass(slots=True)
class TestClock:
    """Whether a test program is running, so that a late signal is not taken for the next one's."""

    is_armed: bool = False

    def ring(self, *_: object) -> None:
        """The signal handler."""
        if self.is_armed:
            self.is_armed = False
            raise TimeIsUp


clock = TestClock()


def _limit_time(cpu_s: float) -> None:
    """An exception at the limit; a signal soon after, should the test catch everything, even with the host gone."""
    used = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + cpu_s) + 5, resource.RLIM_INFINITY))
    clock.is_armed = True
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def prepare(job: dict[str, Any]) -> PreparedTests:
    """Compile a test program, with a commit after every statement that may call the solution.

    Raises:
        Broken: the tests do not parse.
    """
    try:
        return _prepare(job)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        raise BrokenTests(f"{type(err).__name__}: {err}") from err


def _prepare(job: dict[str, Any]) -> PreparedTests:
    trees = [ast.parse(t) for t in job["tests"]]
    free = free_names([job["before"], *job["tests"]])
    starts_itself = any(_starts_itself(tree) for tree in trees)
    codes = []
    for tree in trees:
        Committing().visit(tree)
        codes.append(compile(ast.fix_missing_locations(tree), "<tests>", "exec", dont_inherit=True))
    before = compile(job["before"], "<prompt>", "exec", dont_inherit=True)
    return PreparedTests(before, tuple(codes), free, starts_itself, frozenset(job["shared"]))


def free_names(sources: list[str]) -> tuple[str, ...]:
    """Global names that are read somewhere and bound nowhere at the top."""
    bound: set[str] = set(dir(builtins))
    read: set[str] = set()
    for source in sources:
        top = symtable.symtable(source, "<tests>", "exec")
        bound |= {
            s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()
        }
        waiting = [top]
        while waiting:
            table = waiting.pop()
            read |= {
                s.get_name()
                for s in table.get_symbols()
                if s.is_referenced() and (table is top or s.is_global())
            }
            bound |= {s.get_name() for s in table.get_symbols() if s.is_declared_global() and s.is_assigned()}
            waiting += table.get_children()
    return tuple(sorted(read - bound))


def _starts_itself(tree: ast.Module) -> bool:
    """Whether the program calls `check` or runs its test cases on its own."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                name = (
                    inner.func.attr
                    if isinstance(inner.func, ast.Attribute)
                    else getattr(inner.func, "id", "")
                )
                if name in ("check", "main", "run") or name.startswith("test_"):
                    return True
    return False


NO_COMMIT_AFTER = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass, ast.Return)


class Committing(ast.NodeTransformer):
    """Adds the commit after simple statements and at the start of the bodies of compound ones."""

    def visit(self, node: ast.AST) -> Any:
        for field in ("body", "orelse", "finalbody", "handlers"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                for child in statements:
                    self.visit(child)
                if field != "handlers" and statements:
                    setattr(node, field, self._with_commits(node, statements))
        return node

    def _with_commits(self, node: ast.AST, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        if isinstance(node, ast.If | ast.While | ast.For | ast.With | ast.AsyncFor | ast.AsyncWith):
            out.append(_commit())
        for statement in statements:
            out.append(statement)
            if not isinstance(statement, NO_COMMIT_AFTER) and not _is_docstring_place(statement, out):
                out.append(_commit())
        return out


def _is_docstring_place(statement: ast.stmt, out: list[ast.stmt]) -> bool:
    return len(out) == 1 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _commit() -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(COMMIT, ast.Load()), [], []))


def run(plan: PreparedTests, job: dict[str, Any], channel: int) -> dict[str, Any]:
    """One solution against a prepared test program."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = module.__dict__
    random.seed(0)
    link = Link(channel, namespace, plan.shared, job["trusted"])
    namespace[COMMIT] = link.commit
    try:
        exec(plan.before, namespace)
    except Exception as err:  # whatever the row's own setup raises is the row's fault
        raise BrokenTests(f"the setup fails: {_reason(err)}") from err
    results: list[str] = []
    try:
        names = _bind(plan, job["entry"], namespace, link)
    except Stopped:
        return {"results": ["gone"], "calls": 0, "dead": True}
    if job["entry"] and job["entry"] not in names and job["entry"] not in namespace:
        return {"results": ["no entry point"], "calls": 0, "dead": False}
    for code in plan.tests:
        why = _one(code, namespace)
        if not why and not plan.starts_itself:
            why = _start(namespace, job["entry"])
        results.append(why)
        if (why and job["stop"]) or link.is_dead:
            break
    dead = link.is_dead
    link.handles.clear()
    namespace.clear()
    sys.modules.pop("__main__", None)
    return {"results": results, "calls": link.calls, "dead": dead}


def _bind(plan: PreparedTests, entry: str | None, namespace: dict[str, Any], link: Link) -> set[str]:
    """Give the test program its missing names: standard library first, the solution last."""
    wanted = [n for n in plan.free if n not in namespace and not _from_library(n, namespace)]
    if entry and entry not in wanted:
        wanted.append(entry)
    found = dict(link.ask("names", wanted)) if wanted else {}
    for name, value in found.items():
        namespace.setdefault(name, value)
    if entry and entry in found and "candidate" not in namespace:
        namespace["candidate"] = found[entry]
    return set(found)


def _from_library(name: str, namespace: dict[str, Any]) -> bool:
    """Whether a missing name is one of the library's; then it is bound, or stays missing, but is never the solution's."""
    if name in WELL_KNOWN:
        home = WELL_KNOWN[name]
        try:
            module = importlib.import_module(home)
        except ImportError:
            return True
        namespace[name] = module if name in ("np", "pd") else getattr(module, name)
        return True
    if name in sys.stdlib_module_names or name in ("numpy", "pandas"):
        with contextlib.suppress(ImportError):
            namespace[name] = importlib.import_module(name)
        return True
    return False


def _one(code: types.CodeType, namespace: dict[str, Any]) -> str:
    """Run one test; what went wrong, or nothing. Its own sys.exit(0) (unittest.main) is a success, the solution's is not."""
    try:
        exec(code, namespace)
    except SolutionExit:
        return "SystemExit in the solution"
    except SystemExit as err:
        return "" if not err.code else "the tests failed"
    except Stopped as err:
        return f"the solution ended: {err}"[:200]
    except TimeIsUp:
        raise
    except BaseException as err:  # noqa: BLE001 - whatever a test raises is its verdict
        return _reason(err)
    return ""


def _reason(err: BaseException) -> str:
    args = [a for a in err.args if type(a) in (str, int, float, bool)]
    return f"{type(err).__name__}: {args[0]!r}"[:200] if args else type(err).__name__


def _start(namespace: dict[str, Any], entry: str | None) -> str:
    """Start a program that only defines its tests: `check(candidate)`, unittest cases, `test_…` functions."""
    check = namespace.get("check")
    if isinstance(check, types.FunctionType):
        wanted = check.__code__.co_argcount
        return _call(check, (namespace[entry],) if wanted and entry else ())
    if "unittest" in sys.modules:
        import unittest

        cases = [
            v
            for v in namespace.values()
            if isinstance(v, type) and issubclass(v, unittest.TestCase) and v.__module__ == "__main__"
        ]
        if cases:
            suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(c) for c in cases)
            outcome = unittest.TestResult()
            suite.run(outcome)
            good = (
                outcome.wasSuccessful() and outcome.testsRun > 0 and len(outcome.skipped) < outcome.testsRun
            )
            return "" if good else "a test case failed"
    for name, value in list(namespace.items()):
        if (
            name.startswith("test_")
            and isinstance(value, types.FunctionType)
            and value.__code__.co_argcount == 0
        ):
            why = _call(value, ())
            if why:
                return why
    return ""


def _call(function: object, args: tuple[Any, ...]) -> str:
    code = compile("f(*a)", "<tests>", "exec")
    return _one(code, {"f": function, "a": args})
