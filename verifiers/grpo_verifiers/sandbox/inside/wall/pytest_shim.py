"""What test programs use of pytest and how tests are collected and run: raises, approx, parametrize, test cases of unittest.

The real pytest would bring plug-ins, files and a run of its own. Rows of public sets use little of it: what is not here
(fixtures, other marks, `skip`) is refused by name before a test is run, and the row has no verdict.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

from .exceptions import Unsupported
from .plan import BrokenTests

Run = Callable[[], None]
VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
LINK: list[Any] = []
"""The connection of the trial of this process."""
HOOKS = [f"{when}_{what}" for when in ("setup", "teardown") for what in ("class", "module", "function")]
HOOKS += ["teardown_method", "pytestmark"]


class raises:
    """`with raises(ValueError, match="…") as info:` fails unless the block raises it; also `raises(E, function, …)`."""

    def __init__(self, expected: Any, *call: Any, match: str | None = None, **kwargs: object) -> None:
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
        return self.pattern is None or self.match(self.pattern)

    type = property(lambda self: type(self.value))

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
        if isinstance(expected, dict):
            is_alike = isinstance(other, dict) and other.keys() == expected.keys()
            return is_alike and all(self._near(e, other[k]) for k, e in expected.items())
        if isinstance(expected, (list, tuple)) or hasattr(expected, "tolist"):
            is_alike = (isinstance(other, (list, tuple)) or hasattr(other, "tolist")) and len(expected) == len(other)
            return is_alike and all(self._near(e, o) for e, o in zip(expected, other, strict=True))
        # a handle of the solution is none of these: its `__eq__` would be the solution's own
        if not isinstance(other, (int, float, complex)):
            return bool(type(other) is type(expected) and other == expected)
        is_nan = self.nan_ok and expected != expected and other != other
        return bool(is_nan or other == expected or abs(other - expected) <= max(self.abs, self.rel * abs(expected)))


def parametrize(argnames: Any, argvalues: Any, ids: object = None, **more: object) -> Callable[[Any], Any]:
    """`@pytest.mark.parametrize`: several of them multiply."""
    _refuse([f"mark.parametrize({name})" for name in more])
    said = [n.strip() for n in argnames.split(",") if n.strip()] if isinstance(argnames, str) else list(argnames)
    rows = [dict(zip(said, case if len(said) > 1 else (case,), strict=True)) for case in argvalues]

    def mark(test: Any) -> Any:
        known: list[dict[str, Any]] = getattr(test, "_parameters", [{}])
        test._parameters = [{**given, **row} for given in known for row in rows]
        return test

    return mark


def collect(namespace: dict[str, Any]) -> Iterator[Run]:
    """What pytest would run: functions `test…`, methods `test…` of classes `Test…` without a constructor.

    Raises:
        BrokenTests: a test is asynchronous.
        Unsupported: there is more around the tests than `setup_method`.
    """
    _refuse([name for name in HOOKS if name in namespace])
    for name, value in list(namespace.items()):
        if name.startswith("test") and type(value) is types.FunctionType:
            yield from _runs(value, None)
        # a class with a constructor is none for pytest, and one of the solution is no test, whatever it is called
        elif name.startswith("Test") and isinstance(value, type) and value.__module__ == "__main__":
            members = [] if "__init__" in vars(value) else [n for n in dir(value) if n.startswith("test")]
            for member in [inspect.getattr_static(value, n) for n in members]:
                if isinstance(member, types.FunctionType):
                    yield from _runs(member, value)


def _runs(test: types.FunctionType, owner: Any) -> Iterator[Run]:
    # called without a loop it would pass without having run
    if inspect.iscoroutinefunction(test):
        raise BrokenTests(f"`{test.__name__}` is asynchronous: pytest would not run it without a plug-in")
    _refuse([name for name in (*HOOKS, "_parameters") if hasattr(owner, name)])
    named = [
        n for n, p in inspect.signature(test).parameters.items() if p.default is p.empty and p.kind not in VARIABLE
    ]
    for given in getattr(test, "_parameters", [{}]):
        _refuse([n for n in named[owner is not None :] if n not in given])
        yield lambda given=given: _run(test, owner, given)  # type: ignore[misc]


def _refuse(names: list[str]) -> None:
    if names:
        raise Unsupported(LINK[0], f"pytest.{names[0]}")


def _run(test: types.FunctionType, owner: Any, given: dict[str, Any]) -> None:
    if owner is None:
        test(**given)
        return
    target = owner()
    if hook := getattr(target, "setup_method", None):
        hook(*([test] if len(inspect.signature(hook).parameters) else []))
    test(target, **given)


def unittest_cases(namespace: dict[str, Any]) -> list[tuple[Any, str]]:
    """The test cases with the names of their methods.

    Raises:
        BrokenTests: there are cases, and none has a test.
    """
    import unittest

    unittest.TestCase.assertIs = lambda s, a, b, m=None: s.assertTrue(LINK[0].same(a, b), m)  # type: ignore[assignment,method-assign]
    unittest.TestCase.assertIsNot = lambda s, a, b, m=None: s.assertFalse(LINK[0].same(a, b), m)  # type: ignore[assignment,method-assign]
    cases = [v for v in namespace.values() if isinstance(v, type) and issubclass(v, unittest.TestCase)]
    cases = [c for c in dict.fromkeys(cases) if c.__module__ == "__main__"]
    found = [(case, name) for case in cases for name in unittest.defaultTestLoader.getTestCaseNames(case)]
    found += [(case, "runTest") for case in cases if hasattr(case, "runTest") and case not in dict(found)]
    if cases and not found:
        raise BrokenTests("its test cases have no test method")
    return found


def run_case(kind: Any, name: str) -> None:
    """Run one method of a test case, with what is set up and taken down around it."""
    from unittest import SkipTest

    if any(getattr(part, "__unittest_skip__", False) for part in (kind, getattr(kind, name))):
        return
    case = kind(name)
    with contextlib.suppress(SkipTest):
        case.setUp()
        try:
            getattr(case, name)()
        finally:
            case.tearDown()


def fail(reason: str = "", **_: object) -> None:
    """`pytest.fail`."""
    raise AssertionError(reason)


class _Absent(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(LINK[0], f"{self.__name__}.{name}")


def module() -> types.ModuleType:
    """A module `pytest` with these names."""
    made, mark = _Absent("pytest"), _Absent("pytest.mark")
    mark.__dict__.update(parametrize=parametrize)
    made.__dict__.update(raises=raises, approx=approx, mark=mark, fail=fail, main=lambda *_, **__: 0)
    return made
