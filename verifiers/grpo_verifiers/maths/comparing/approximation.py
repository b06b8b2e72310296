"""Floating-point value of a tree with a bound on its error. Used to reject, never to accept."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping
from typing import NamedTuple

from grpo_verifiers.maths.reading.tree import Node

_EPS = 2.3e-16
_FUNCTIONS = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh,
    "arcsin": cmath.asin, "arccos": cmath.acos, "arctan": cmath.atan,
}  # fmt: skip
_RECIPROCAL = {"cot": "tan", "sec": "cos", "csc": "sin", "coth": "tanh"}


class Approx(NamedTuple):
    """A complex value and a bound on its absolute error."""

    value: complex
    error: float


class NoValue(ArithmeticError):
    """Overflow, a pole, or something floats cannot say."""


def sample_points(names: list[str], positive: bool, small: bool = False) -> list[dict[str, float]]:
    """Two points for the free symbols: the first positive, the second of mixed signs unless `positive`.

    `small`: inside (0, 1), where inverse sines are real.
    """
    points = []
    for round_ in range(2):
        point = {}
        for i, name in enumerate(sorted(names)):
            value = 0.37 + ((i + 1) * (0.6180339887498949 if round_ == 0 else 0.7548776662466927)) % 1.0 * 2.1
            value = 0.1 + value / 3 if small else value
            point[name] = value if positive or round_ == 0 or i % 2 else -value
        points.append(point)
    return points


def approximate(node: Node, point: Mapping[str, float], log10: bool = False) -> Approx:
    """The value at a point.

    Raises:
        NoValue: it overflows, is undefined, or is no scalar.
    """
    try:
        found = _value(node, point, log10)
    except (OverflowError, ZeroDivisionError, ValueError) as err:
        raise NoValue(str(err)) from err
    # a value whose digits are lost would let everything pass for equal
    if not cmath.isfinite(found.value) or not found.error <= 1e-4 * max(1.0, abs(found.value)):
        raise NoValue("not finite, or lost in rounding")
    return found


def differ(a: Approx, b: Approx) -> bool:
    """Whether two values are apart by more than rounding can explain."""
    # wide: a false "apart" refuses a right answer for good, a false "together" is seen by the tiers behind
    gap = abs(a.value - b.value)
    return gap > 64 * (a.error + b.error) + 1e-13 * min(abs(a.value), abs(b.value))


def _value(node: Node, point: Mapping[str, float], log10: bool) -> Approx:
    kind = node[0]
    if kind == "n":
        value = float(node[1])
        # a number too small for a float is no zero
        if value == 0.0 and node[1] != 0:
            raise NoValue("underflow")
        return Approx(complex(value), _EPS * abs(value))
    if kind == "s":
        return Approx(complex(point[node[1]]), 0.0)
    if kind == "c":
        value_of = {"pi": math.pi, "e": math.e, "i": 1j}[node[1]]
        return Approx(complex(value_of), 0.0 if node[1] == "i" else _EPS)
    if kind == "neg":
        inner = _value(node[1], point, log10)
        return Approx(0j - inner.value, inner.error)  # not `-value`: -1-0j has the other square root
    if kind == "+":
        total, error = 0j, 0.0
        for term in node[1:]:
            part = _value(term, point, log10)
            total += part.value
            error += part.error + _EPS * abs(total)
        return Approx(total, error)
    if kind == "*":
        result = Approx(1 + 0j, 0.0)
        for factor in node[1:]:
            result = _times(result, _value(factor, point, log10))
        return result
    if kind == "/":
        top, bottom = _value(node[1], point, log10), _value(node[2], point, log10)
        # it may be zero: then the quotient is anything
        if abs(bottom.value) <= 4 * bottom.error:
            raise NoValue("a division by zero")
        value_c = top.value / bottom.value
        return Approx(
            value_c, (top.error + abs(value_c) * bottom.error) / abs(bottom.value) + _EPS * abs(value_c)
        )
    if kind == "^":
        return _power(_value(node[1], point, log10), _value(node[2], point, log10))
    if kind == "root":
        return _root(_value(node[1], point, log10), _value(node[2], point, log10))
    if kind == "f":
        return _function(node, point, log10)
    if kind == "log":
        return _log(node, point, log10)
    if kind == "deg":
        inner = _value(node[1], point, log10)
        return Approx(inner.value * math.pi / 180, inner.error * 0.02 + _EPS * abs(inner.value))
    if kind == "!":
        return _gamma(_value(node[1], point, log10))
    if kind == "binom":
        n, k = _value(node[1], point, log10), _value(node[2], point, log10)
        rest = _gamma(Approx(n.value - k.value, n.error + k.error))
        lower = _times(_gamma(k), rest)
        upper = _gamma(n)
        value_c = upper.value / lower.value
        return Approx(value_c, abs(value_c) * 1e-12)
    raise NoValue(kind)


def _times(a: Approx, b: Approx) -> Approx:
    value = a.value * b.value
    return Approx(value, abs(a.value) * b.error + abs(b.value) * a.error + _EPS * abs(value))


def _above_cut(base: Approx) -> complex:
    """A value that may be a negative real is taken as one, so that its root is the principal one."""
    return complex(base.value.real, 0.0) if abs(base.value.imag) <= 4 * base.error else base.value


def _power(base: Approx, exponent: Approx) -> Approx:
    if base.value == 0:
        if exponent.value.real <= 0:
            raise NoValue("zero to a power that is not positive")
        return Approx(0j, base.error)
    value = _above_cut(base) ** exponent.value
    if value == 0:
        raise NoValue("underflow")
    relative = (
        abs(exponent.value) * base.error / abs(base.value) + abs(cmath.log(base.value)) * exponent.error
    )
    return Approx(value, abs(value) * (relative + 4 * _EPS * (1 + abs(exponent.value))))


def _root(base: Approx, index: Approx) -> Approx:
    if abs(base.value) <= 4 * base.error:
        return Approx(0j, math.sqrt(base.error) + 1e-300) if base.value else Approx(0j, 0.0)
    n = index.value.real
    # an odd root of a negative number is meant to be real, where floats give the complex one
    if abs(base.value.imag) <= 4 * base.error and base.value.real < 0 and n == round(n) and n % 2 == 1:
        value = complex(-((-base.value.real) ** (1 / n)))
    else:
        value = _above_cut(base) ** (1 / index.value)
    return Approx(value, abs(value) * (base.error / abs(base.value) / abs(n) + 4 * _EPS))


def _function(node: Node, point: Mapping[str, float], log10: bool) -> Approx:
    name = node[1]
    arguments = [_value(a, point, log10) for a in node[2]]
    if name in ("max", "min"):
        best = (max if name == "max" else min)(arguments, key=lambda a: a.value.real)
        return best
    if len(arguments) != 1:
        raise NoValue(name)
    (x,) = arguments
    if name == "abs":
        return Approx(complex(abs(x.value)), x.error)
    if name in ("floor", "ceil"):
        low = math.floor(x.value.real) if name == "floor" else math.ceil(x.value.real)
        if abs(x.value.real - round(x.value.real)) < 1e-9 * (1 + abs(x.value.real)) and x.error:
            raise NoValue("at a jump")
        return Approx(complex(low), 0.0)
    if name in _RECIPROCAL:
        inner = _function(("f", _RECIPROCAL[name], node[2]), point, log10)
        if abs(inner.value) <= 8 * inner.error:
            raise NoValue("a pole")
        return Approx(1 / inner.value, inner.error / abs(inner.value) ** 2 + _EPS)
    if name == "arccot":
        value = cmath.pi / 2 - cmath.atan(x.value)
        return Approx(value, 4 * (x.error + _EPS))
    if name in ("arcsec", "arccsc"):
        value = (cmath.acos if name == "arcsec" else cmath.asin)(1 / x.value)
        return Approx(value, 1e-12 * (1 + abs(value)))
    if name in _FUNCTIONS:
        value = _FUNCTIONS[name](x.value)
        slope = (
            (_FUNCTIONS[name](x.value + 1e-7) - value) / 1e-7
            if name[:3] == "arc" and abs(abs(x.value) - 1) > 1e-3
            else 1 + abs(value) ** 2
        )
        return Approx(value, (abs(slope) + 1) * x.error + 4 * _EPS * (1 + abs(value)))
    # An unknown function is some smooth function of its arguments, the same on both sides.
    letter = sum(map(ord, name))
    mixed = sum((i + 1.3) * a.value for i, a in enumerate(arguments))
    value = cmath.sin(mixed * 0.7 + letter) + 2
    # its slope is below 1 at real arguments, so that four times their error is ample
    return Approx(value, sum(a.error for a in arguments) * 4 + 8 * _EPS)


def _log(node: Node, point: Mapping[str, float], log10: bool) -> Approx:
    x = _value(node[2], point, log10)
    if abs(x.value) <= 4 * x.error:
        raise NoValue("logarithm of zero")
    top = Approx(cmath.log(x.value), x.error / abs(x.value) + _EPS * (1 + abs(cmath.log(x.value))))
    base = node[1]
    if base is None:
        base_value = 10.0 if log10 else math.e
        return Approx(top.value / math.log(base_value), top.error)
    if base == ("c", "e"):
        return top
    b = _value(base, point, log10)
    bottom = cmath.log(b.value)
    if abs(bottom) < 1e-12:
        raise NoValue("logarithm to base one")
    value = top.value / bottom
    return Approx(
        value, (top.error + abs(value) * (b.error / abs(b.value) + _EPS)) / abs(bottom) + _EPS * abs(value)
    )


def _gamma(x: Approx) -> Approx:
    if abs(x.value.imag) > 1e-9 or x.value.real > 165:
        raise NoValue("a factorial")
    value = math.gamma(x.value.real + 1)
    return Approx(complex(value), abs(value) * (1e-13 + 8 * x.error * (1 + abs(x.value))))
