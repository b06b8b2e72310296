"""What test programs use of pytest and how tests are collected and run: raises, approx, fixtures, parametrize, test cases.

The real pytest would bring plug-ins, files and a run of its own; what of it is not here has no verdict.
"""

from __future__ import annotations

import inspect
import io
import itertools
import os
import re
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .exceptions import Unsupported
from .plan import BrokenTests

Expected = type[BaseException] | tuple[type[BaseException], ...]


class raises:
    """`with raises(ValueError, match="…") as info:` fails unless the block raises it; also `raises(E, function, …)`."""

    def __init__(self, expected: Expected, *call: Any, match: str | None = None, **kwargs: object) -> None:
        self.expected, self.pattern = expected, match
        self.value: BaseException | None = None
        if call:
            with self:
                call[0](*call[1:], **kwargs)

    def __enter__(self) -> raises:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: object) -> bool:
        if kind is None:
            raise AssertionError("did not raise")
        if not issubclass(kind, self.expected):
            return False
        self.value = value
        if self.pattern is not None:
            self.match(self.pattern)
        return True

    @property
    def type(self) -> Any:
        """The class of what was raised."""
        return type(self.value)

    def match(self, pattern: str) -> bool:
        """Whether the text of what was raised has the pattern."""
        if not re.search(pattern, str(self.value)):
            raise AssertionError(f"{self.value} does not match")
        return True


class approx:
    """Equal to numbers, or to sequences of them, within a tolerance; a handle of the solution is no number."""

    def __init__(
        self, expected: object, rel: float | None = None, abs: float | None = None, nan_ok: bool = False
    ) -> None:
        self.expected = expected
        self.rel = (0.0 if abs is not None else 1e-6) if rel is None else rel
        self.abs, self.nan_ok = 1e-12 if abs is None else abs, nan_ok

    def __eq__(self, other: object) -> bool:
        return self._near(self.expected, other)

    __hash__ = None  # type: ignore[assignment]

    def _near(self, expected: Any, other: Any) -> bool:
        if isinstance(expected, (list, tuple)) or hasattr(expected, "tolist"):
            if not (isinstance(other, (list, tuple)) or hasattr(other, "tolist")):
                return False
            return len(expected) == len(other) and all(self._near(e, o) for e, o in zip(expected, other, strict=True))
        if isinstance(expected, dict):
            if not isinstance(other, dict) or other.keys() != expected.keys():
                return False
            return all(self._near(e, other[k]) for k, e in expected.items())
        # a handle of the solution is none of these: its `__eq__` would be the solution's own
        if not isinstance(other, (int, float, complex)):
            return bool(type(other) is type(expected) and other == expected)
        if self.nan_ok and expected != expected:
            return other != other
        return bool(other == expected or abs(other - expected) <= max(self.abs, self.rel * abs(expected)))


VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Skipped(BaseException):
    """The test says that it does not apply here."""


class Mark:
    """`pytest.mark`: parametrize is heeded, skip leaves the test out, anything else does nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def mark(*args: object, **kwargs: object) -> Any:
            if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
                return _marked(args[0], name, (), {})  # used bare, as a decorator
            return lambda test: _marked(test, name, args, kwargs)

        return mark


def _marked(test: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if name == "parametrize":
        names = [n.strip() for n in args[0].split(",") if n.strip()] if isinstance(args[0], str) else list(args[0])
        rows = [(v.values if isinstance(v, Param) else v if len(names) > 1 else (v,)) for v in args[1]]
        # several of them multiply
        known = list(getattr(test, "_parameters", []))
        test._parameters = [*known, [dict(zip(names, row, strict=True)) for row in rows]]
    elif name == "skip" or (name == "skipif" and args and args[0]):
        test._is_skipped = True
    return test


class Param:
    """`pytest.param(…)`."""

    def __init__(self, *values: object, **_: object) -> None:
        self.values = values


def fixture(function: Callable[..., Any] | None = None, **kwargs: object) -> Any:
    """`@pytest.fixture`, with or without arguments."""
    if function is None:
        return lambda f: fixture(f, **kwargs)
    vars(function).update(_is_fixture=True, _is_autouse=bool(kwargs.get("autouse")))
    return function


class Captured(NamedTuple):
    """What `readouterr` returns."""

    out: str
    err: str


class CapturedStreams:
    """The fixture `capsys`."""

    def __init__(self) -> None:
        self.kept = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self.out, self.err = io.StringIO(), io.StringIO()

    def readouterr(self) -> Any:
        """What was printed since the last call."""
        found = Captured(self.out.getvalue(), self.err.getvalue())
        for stream in (self.out, self.err):
            stream.seek(0)
            stream.truncate()
        return found

    def undo(self) -> None:
        """Give the streams back."""
        sys.stdout, sys.stderr = self.kept


class MonkeyPatch:
    """The fixture `monkeypatch`."""

    def __init__(self) -> None:
        self.patches: list[Any] = []

    def setattr(self, target: object, name: str, value: Any = ..., raising: bool = True) -> None:
        """Patch an attribute, of an object or by its dotted name."""
        from unittest.mock import patch

        if isinstance(target, str):
            self._start(patch(target, name))
        else:
            self._start(patch.object(target, name, value, create=not raising))

    def setitem(self, mapping: object, name: object, value: object) -> None:
        """Patch an item of a mapping."""
        from unittest.mock import patch

        self._start(patch.dict(mapping, {name: value}))

    def _start(self, patch: Any) -> None:
        patch.start()
        self.patches.append(patch)

    def setenv(self, name: str, value: str) -> None:
        """Patch a variable of the environment."""
        self.setitem(os.environ, name, str(value))

    def undo(self) -> None:
        """Take all patches back."""
        while self.patches:
            self.patches.pop().stop()


def _builtin_fixture(name: str) -> tuple[Any, Callable[[], None] | None] | None:
    if name in ("capsys", "capfd"):
        captured = CapturedStreams()
        return captured, captured.undo
    if name == "monkeypatch":
        patch = MonkeyPatch()
        return patch, patch.undo
    if name in ("tmp_path", "tmpdir"):
        import pathlib

        return pathlib.Path(tempfile.mkdtemp()), None
    return None


def collect(namespace: dict[str, Any]) -> Iterator[Callable[[], None]]:
    """What pytest would run: functions `test…`, methods `test…` of classes `Test…` without a constructor.

    Raises:
        BrokenTests: a test is asynchronous, or wants a fixture that is nowhere.
    """
    for name, value in list(namespace.items()):
        if name.startswith("test") and type(value) is types.FunctionType:
            yield from _runs(value, namespace, None)
        # a class with a constructor is none for pytest, and one of the solution is no test, whatever it is called
        elif name.startswith("Test") and isinstance(value, type) and value.__module__ == "__main__":
            members = [] if "__init__" in vars(value) else [n for n in dir(value) if n.startswith("test")]
            for member in [inspect.getattr_static(value, n) for n in members]:
                if isinstance(member, types.FunctionType):
                    yield from _runs(member, namespace, value)


def _runs(test: types.FunctionType, namespace: dict[str, Any], owner: type | None) -> Iterator[Callable[[], None]]:
    # called without a loop it would pass without having run
    if inspect.iscoroutinefunction(test):
        raise BrokenTests(f"`{test.__name__}` is asynchronous: pytest would not run it without a plug-in")
    if getattr(test, "_is_skipped", False) or getattr(owner, "_is_skipped", False):
        return
    stacks = [*getattr(owner, "_parameters", []), *getattr(test, "_parameters", [])]
    for chosen in itertools.product(*stacks):
        given = {k: v for part in chosen for k, v in part.items()}
        yield lambda given=given: _run(test, namespace, owner, given)  # type: ignore[misc]


def _run(test: types.FunctionType, namespace: dict[str, Any], owner: type | None, given: dict[str, Any]) -> None:
    target = owner() if owner is not None else None
    made = dict[str, Any]()
    undo: list[Callable[[], None]] = []
    hook = "setup_method" if owner is not None else "setup_function"
    try:
        _hook(namespace if owner is None else {}, target, "setup_class" if owner else "setup_module", owner)
        _hook(namespace, target, hook, test)
        for name in [n for n, f in namespace.items() if getattr(f, "_is_autouse", False)]:
            _fixture(name, namespace, target, made, undo)
        function = test.__get__(target) if target is not None else test
        wanted = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in VARIABLE
        ]
        args = {n: given[n] if n in given else _fixture(n, namespace, target, made, undo) for n in wanted}
        function(**{**given, **args})
    # it decides nothing, and a trial in which nothing is decided is not passed
    except Skipped:
        pass
    finally:
        for step in reversed(undo):
            step()
        _hook(namespace, target, hook.replace("setup", "teardown"), test)


def _hook(namespace: dict[str, Any], target: object, name: str, argument: object) -> None:
    hook = getattr(target, name, None) if target is not None else namespace.get(name)
    if isinstance(hook, types.FunctionType | types.MethodType):
        hook(*([argument] if len(inspect.signature(hook).parameters) else []))


def _fixture(
    name: str, namespace: dict[str, Any], target: object, made: dict[str, Any], undo: list[Callable[[], None]]
) -> Any:
    if name in made:
        return made[name]
    function = getattr(type(target), name, None) if target is not None else None
    bound = function.__get__(target) if getattr(function, "_is_fixture", False) and function else None
    function = bound or namespace.get(name)
    if not getattr(function, "_is_fixture", False):
        builtin = _builtin_fixture(name)
        if builtin is None:
            raise BrokenTests(f"no fixture `{name}`")
        made[name] = builtin[0]
        if builtin[1] is not None:
            undo.append(builtin[1])
        return made[name]
    assert function is not None
    args = {n: _fixture(n, namespace, target, made, undo) for n in inspect.signature(function).parameters}
    value = function(**args)
    # what stands behind its `yield` runs when the test is over
    if inspect.isgeneratorfunction(function):
        steps, value = value, next(value)
        undo.append(lambda: next(steps, None))
    made[name] = value
    return value


def _raising(kind: type[BaseException]) -> Callable[..., None]:
    def ended(reason: str = "", **_: object) -> None:
        raise kind(reason)

    return ended


LINK: list[Any] = []
"""The connection of the trial of this process."""


def unittest_cases(namespace: dict[str, Any]) -> Iterator[Callable[[], None]]:
    """The methods of the test cases, each to be run with what is set up and taken down around it.

    Raises:
        BrokenTests: there are cases, and none has a test.
    """
    import unittest

    unittest.TestCase.assertIs = lambda s, a, b, m=None: s.assertTrue(LINK[0].same(a, b), m)  # type: ignore[assignment,method-assign]
    unittest.TestCase.assertIsNot = lambda s, a, b, m=None: s.assertFalse(LINK[0].same(a, b), m)  # type: ignore[assignment,method-assign]
    cases = [v for v in namespace.values() if isinstance(v, type) and issubclass(v, unittest.TestCase)]
    cases = [c for c in dict.fromkeys(cases) if c.__module__ == "__main__"]
    has_test = False
    for case in cases:
        names = list(unittest.defaultTestLoader.getTestCaseNames(case)) or ["runTest"] * hasattr(case, "runTest")
        names = [] if getattr(case, "__unittest_skip__", False) else names
        for at, name in enumerate(names):
            has_test = True
            yield lambda case=case, name=name, at=at, last=names[-1]: _run_case(case, name, at == 0, name == last)  # type: ignore[misc]
        has_test |= bool(getattr(case, "__unittest_skip__", False))
    if cases and not has_test:
        raise BrokenTests("its test cases have no test method")


def _run_case(cls: Any, name: str, is_first: bool, is_last: bool) -> None:
    import unittest

    if is_first:
        cls.setUpClass()
    try:
        case = cls(name)
        method = getattr(case, name)
        if getattr(method, "__unittest_skip__", False):
            return
        if inspect.iscoroutinefunction(method):  # in one process alone
            outcome = unittest.TestResult()
            case.run(outcome)
            if not outcome.wasSuccessful():
                raise AssertionError([*outcome.failures, *outcome.errors][0][1])
            return
        try:
            case.setUp()
            try:
                method()
            finally:
                case.tearDown()
        except unittest.SkipTest:
            pass
        finally:
            while case._cleanups:
                function, args, kwargs = case._cleanups.pop()
                function(*args, **kwargs)
    finally:
        if is_last:
            cls.tearDownClass()
            cls.doClassCleanups()


class _Pytest(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(LINK[0], f"pytest.{name}")


def module() -> types.ModuleType:
    """A module `pytest` with these names."""
    made = _Pytest("pytest")
    made.__dict__.update(
        raises=raises,
        approx=approx,
        mark=Mark(),
        param=Param,
        fixture=fixture,
        skip=_raising(Skipped),
        fail=_raising(AssertionError),
        importorskip=__import__,
        main=lambda *_, **__: 0,
        MonkeyPatch=MonkeyPatch,
    )
    return made
