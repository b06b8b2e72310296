"""Is what a run handed out the expected thing? Values stay in their tagged form: nothing of a run is built here but JSON.

The expected value leads: what it does not ask for is never looked at, so a hostile answer costs no more than an honest one.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from grpo_verifiers.sandbox.inside.wall import values as wire

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
MOST_DIGITS = 400
ROUNDING, MOST_ROUNDING = 1e-10, 1e-3
"""What a whole number may be off by where it was computed in doubles: relative to it, and at most."""
COMPARES = ("lenient", "lines", "tokens", "strict")
BLANKS = " \t\r"
SPACES = re.compile(r"([ \t\r]+)")


@dataclass(frozen=True, slots=True)
class CompareRule:
    """How equal is equal. `exact`: Python's own `==`; else a tuple is a list and NaN is NaN, as JSON cannot tell."""

    exact: bool = False
    tolerance: float | None = None


def same(expected: Any, got: Any, rule: CompareRule) -> bool:
    """Whether the tagged value `got` equals `expected`."""
    kind = type(expected)
    inner = _body(got, "ns") or _body(got, "u")  # a scalar of numpy, an object of a library that equals a plain value
    if type(inner) is list and len(inner) == 2:
        got = inner[1]
    if kind is list or kind is tuple:
        items = _items(kind, got, rule)
        return (
            type(items) is list
            and len(items) == len(expected)
            and all(same(e, g, rule) for e, g in zip(expected, items, strict=True))
        )
    if kind is dict:
        return _same_dict(expected, got, rule)
    if kind is set or kind is frozenset:
        return _same_set(expected, got)
    if kind is str:
        return type(got) is str and got == expected
    if kind is bytes or kind is bytearray:
        return expected.hex() in (_body(got, "b"), _body(got, "B"))
    if expected is None:
        return got is None
    return _same_number(expected, got, rule)


def _body(got: object, tag: str) -> Any:
    return got.get(tag) if type(got) is dict and len(got) == 1 else None


def _items(kind: type, got: object, rule: CompareRule) -> Any:
    if type(got) is list:
        return got if kind is list or not rule.exact else None
    if kind is list and rule.exact:
        return None
    named = _body(got, "n")
    if type(named) is list and len(named) == 3:
        return named[2]
    return _body(got, "t")


def _same_dict(expected: dict[Any, Any], got: object, rule: CompareRule) -> bool:
    pairs = _body(got, "d")
    special = _body(got, "D")
    if type(special) is list and len(special) == 2:
        pairs = special[1]
    if type(pairs) is not list or len(pairs) != len(expected):
        return False
    seen = set()
    for pair in pairs:
        if type(pair) is not list or len(pair) != 2:
            return False
        try:
            key = hashable(pair[0])
            if key not in expected:
                key = str(key) if type(key) is int and not rule.exact else key
            if key not in expected or not same(expected[key], pair[1], rule):
                return False
        except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError):
            return False
        seen.add(key)
    return len(seen) == len(expected)


def _same_set(expected: set[Any] | frozenset[Any], got: object) -> bool:
    items = _body(got, "s")
    if items is None:
        items = _body(got, "f")
    view = _body(got, "v")
    if type(view) is list and len(view) == 2 and view[0] in (0, 2):  # keys and items of a dict
        items = view[1]
    if type(items) is not list or len(items) != len(expected):
        return False
    try:
        found = [hashable(i) for i in items]
        return all(f in expected for f in found) and len(set(found)) == len(expected)
    except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError):
        return False


def _same_number(expected: Any, got: object, rule: CompareRule) -> bool:
    value = number(got)
    if value is None:
        return False
    try:
        if value == expected:
            return True
        if isinstance(expected, float) and math.isnan(expected):
            return not rule.exact and isinstance(value, float) and math.isnan(value)
        return rule.tolerance is not None and near(expected, value, rule.tolerance)
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return False


def hashable(got: object) -> Any:
    """A key or set item, built; only of kinds that cost no more than their text."""
    if type(got) is dict:
        tag = next(iter(got), "")
        if tag not in ("i", "t", "f", "b", "c", "q", "m", "n", "ns") or len(got) != 1:
            raise wire.BadWire("no key")
        if tag in ("t", "f"):
            made = [hashable(v) for v in got[tag]]
            return tuple(made) if tag == "t" else frozenset(made)
        if tag == "n":
            return tuple([hashable(v) for v in got[tag][2]])
        return number(got) if tag == "ns" else wire.decode(got)
    if type(got) is list:
        raise wire.BadWire("a list is no key")
    return got


def near(expected: float, value: float | Fraction | Decimal, tolerance: float) -> bool:
    """Within the tolerance, absolute below 1 and relative above; infinities and NaN never are.

    An expected whole number (an `int`) is met only by what rounds to it and is off by no more than arithmetic in doubles
    is: `2.0000000000000004`, and never `1000000.4`.

    Raises:
        TypeError, OverflowError: one of the two is a complex number, or too large for a float.
    """
    wanted, found = float(expected), float(value)
    if not (math.isfinite(wanted) and math.isfinite(found)):
        return False
    gap, size = abs(wanted - found), max(1.0, abs(wanted))
    if not isinstance(expected, int):
        return gap <= tolerance * size
    return gap <= min(min(tolerance, ROUNDING) * size, MOST_ROUNDING) and round(value) == expected


def number(got: object) -> Any:
    """The number behind a tagged value, None if it is none."""
    if type(got) in (bool, int, float):
        return got
    if type(got) is dict and len(got) == 1 and next(iter(got)) in ("i", "c", "q", "m"):
        try:
            return wire.decode(got)
        except (TypeError, ValueError, KeyError, ArithmeticError, RecursionError):
            return None
    scalar = _body(got, "ns") or _body(got, "u")
    if type(scalar) is list and len(scalar) == 2:
        return number(scalar[1])
    return None


def same_output(expected: str, printed: str, how: str = "lenient", tolerance: float | None = None) -> bool:
    """Whether printed text is the expected text, by one of `COMPARES`.

    Lines end at line feeds only. Blanks at line ends and empty lines around the text never count, nor the spelling of a
    number beyond leading zeros (`+5`, `-0`, `1e3`); with `lines` blanks at the start of a line do not either, with
    `tokens` no white space does. `strict`: every character does, but for white space at the very end. `tolerance` is for
    decimals (`near`).
    """
    if how == "strict":
        return expected.rstrip() == printed.rstrip()
    if how == "tokens":
        return _same_tokens(expected.split(), printed.split(), tolerance)
    want, have = (
        [line.strip(BLANKS) for line in text.strip().split("\n")] if how == "lines" else _lines(text)
        for text in (expected, printed)
    )
    return want == have or (
        len(want) == len(have)
        # the blanks between tokens are tokens as well
        and all(
            w == h or _same_tokens(SPACES.split(w), SPACES.split(h), tolerance) for w, h in zip(want, have, strict=True)
        )
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip(BLANKS) for line in text.strip("\r\n").rstrip().split("\n")]


def _same_tokens(want: list[str], have: list[str], tolerance: float | None) -> bool:
    return len(want) == len(have) and all(
        w == h or _same_token(w, h, tolerance) for w, h in zip(want, have, strict=True)
    )


def _same_token(want: str, have: str, tolerance: float | None) -> bool:
    if len(want) > MOST_DIGITS or len(have) > MOST_DIGITS:
        return False
    if not NUMBER.fullmatch(want) or not NUMBER.fullmatch(have) or _zeros(want) != _zeros(have):
        return False
    try:
        if Decimal(want) == Decimal(have):
            return True
    except InvalidOperation:
        return False
    if tolerance is None:
        return False
    try:
        return near(int(want) if WHOLE.fullmatch(want) else float(want), Decimal(have), tolerance)
    except OverflowError:
        return False


def _zeros(number: str) -> int:
    """How many zeros stand before the first digit that counts: `007` is not `7`."""
    whole = re.split(r"[.eE]", number.lstrip("+-"), maxsplit=1)[0]
    return max(0, len(whole) - max(1, len(whole.lstrip("0")))) if whole else 0
