"""The two things of pytest that test programs use, for lanes where pytest is out of sight: `raises` and `approx`."""

from __future__ import annotations

import re
import types
from typing import Any


class raises:
    """`with raises(ValueError, match="…"):` fails unless the block raises it."""

    def __init__(self, expected: Any, *, match: str | None = None) -> None:
        self.expected, self.match, self.value = expected, match, None

    def __enter__(self) -> raises:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        if kind is None:
            raise AssertionError("did not raise")
        if not issubclass(kind, self.expected):
            return False
        self.value = value
        if self.match is not None and not re.search(self.match, str(value)):
            raise AssertionError(f"{value} does not match")
        return True


class approx:
    """Equal to numbers, or to sequences of them, within a tolerance; a handle of the solution is no number."""

    def __init__(self, expected: Any, rel: float = 1e-6, abs: float = 1e-12) -> None:
        self.expected, self.rel, self.abs = expected, rel, abs

    def __eq__(self, other: Any) -> bool:
        return self._near(self.expected, other)

    __hash__ = None  # type: ignore[assignment]

    def _near(self, expected: Any, other: Any) -> bool:
        if isinstance(expected, (list, tuple)):
            if not isinstance(other, (list, tuple)) or len(other) != len(expected):
                return False
            return all(self._near(e, o) for e, o in zip(expected, other, strict=True))
        if isinstance(expected, dict):
            if not isinstance(other, dict) or other.keys() != expected.keys():
                return False
            return all(self._near(e, other[k]) for k, e in expected.items())
        if not isinstance(other, (int, float)):
            return False
        return bool(other == expected or abs(other - expected) <= max(self.abs, self.rel * abs(expected)))


def module() -> types.ModuleType:
    """A module `pytest` with these two names."""
    made = types.ModuleType("pytest")
    made.__dict__.update(raises=raises, approx=approx)
    return made
