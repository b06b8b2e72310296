"""The value of a tree: exactly as a fraction, or as a floating-point number with a bound on its error.

How this works: `rational` evaluates exactly, within bounds on the size of every number that occurs. `approximate`
evaluates at a point with complex floats and carries the error along; two values `differ` only beyond their errors. So
floats reject and never accept.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from grpo_verifiers.maths.reading.tokens import TooBig
from grpo_verifiers.maths.reading.tree import Node

BITS = 60_000
"""Largest numerator or denominator; beyond it numbers are compared in a finite field or not at all."""
FACTORIAL = 3_000
_EPS = 2.3e-16
_FUNCTIONS = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh,
    "arcsin": cmath.asin, "arccos": cmath.acos, "arctan": cmath.atan,
}  # fmt: skip
_RECIPROCAL = {"cot": "tan", "sec": "cos", "csc": "sin", "coth": "tanh"}


class NotRational(ValueError):
    """The tree has no rational value that can be found exactly here."""


class Undefined(ValueError):
    """A division by zero, a root of nothing: no value at all."""


def rational(node: Node) -> Fraction:
    """The value of a tree of numbers.

    Raises:
        NotRational: symbols, roots, functions.
        TooBig: a number beyond `BITS`.
        Undefined: a division by zero.
    """
    kind = node[0]
    if kind == "n":
        value: Fraction = node[1]
        return value
    if kind == "neg":
        return -rational(node[1])
    if kind == "+":
        total = rational(node[1])
        for term in node[2:]:
            total = _bounded(total + rational(term))
        return total
    if kind == "*":
        product = rational(node[1])
        for factor in node[2:]:
            product = _bounded(product * rational(factor))
        return product
    if kind == "/":
        bottom = rational(node[2])
        if bottom == 0:
            raise Undefined("a division by zero")
        return _bounded(rational(node[1]) / bottom)
    if kind == "^":
        return _rational_power(rational(node[1]), rational(node[2]))
    if kind == "root":
        index = rational(node[2])
        if index == 0:
            raise Undefined("a root of order zero")
        return _rational_power(rational(node[1]), 1 / index)
    if kind == "!":
        return Fraction(math.factorial(_whole(node[1], FACTORIAL)))
    if kind == "!!":
        return Fraction(math.prod(range(_whole(node[1], FACTORIAL), 0, -2)))
    if kind == "binom":
        n, k = _whole(node[1], 20_000), _whole(node[2], 20_000)
        # its size grows with the smaller of the two
        if min(k, n - k) > 3_000:
            raise TooBig("a binomial")
        return Fraction(math.comb(n, k))
    if kind == "f" and len(node[2]) == 1:
        value = rational(node[2][0])
        if node[1] == "abs":
            return abs(value)
        if node[1] == "floor":
            return Fraction(math.floor(value))
        if node[1] == "ceil":
            return Fraction(math.ceil(value))
    raise NotRational(kind)


def _whole(node: Node, most: int) -> int:
    value = rational(node)
    if value.denominator != 1 or value < 0:
        raise NotRational("not a whole number")
    if value > most:
        raise TooBig("a factorial")
    return value.numerator


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > BITS or value.denominator.bit_length() > BITS:
        raise TooBig("a number")
    return value


def _rational_power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        # base ** exponent if that is rational
        index = exponent.denominator
        if index > 64 or (base < 0 and index % 2 == 0):
            raise NotRational("an irrational root")
        top, bottom = _integer_root(abs(base.numerator), index), _integer_root(base.denominator, index)
        root = Fraction(top, bottom)
        return _rational_power(-root if base < 0 else root, Fraction(exponent.numerator))
    n = exponent.numerator
    if base == 0:
        if n <= 0:
            raise Undefined("zero to a power that is not positive")
        return Fraction(0)
    # these never grow, whatever the exponent
    if base in (1, -1):
        return base if n % 2 else Fraction(1)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    # the size is known before the power is taken: 9^(9^9) must not be
    if abs(n) * bits > BITS:
        raise TooBig("a power")
    return base**n


def _integer_root(n: int, index: int) -> int:
    if n.bit_length() > 4_000:
        raise TooBig("a root")
    if index == 2:
        root = math.isqrt(n)
    else:
        # by halving, since a root of floats is not exact beyond 2^53
        low, high = 0, 1 << (n.bit_length() // index + 1)
        while low < high:
            middle = (low + high + 1) // 2
            if middle**index <= n:
                low = middle
            else:
                high = middle - 1
        root = low
    if root**index != n:
        raise NotRational("an irrational root")
    return root


class Approx(NamedTuple):
    """A complex value and a bound on its absolute error."""

    value: complex
    error: float


class NoValue(ArithmeticError):
    """Overflow, a pole, or something floats cannot represent."""


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
        return Approx(value_c, (top.error + abs(value_c) * bottom.error) / abs(bottom.value) + _EPS * abs(value_c))
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
        lower = _times(_gamma(k), _gamma(Approx(n.value - k.value, n.error + k.error)))
        value_c = _gamma(n).value / lower.value
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
    relative = abs(exponent.value) * base.error / abs(base.value) + abs(cmath.log(base.value)) * exponent.error
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
        return (max if name == "max" else min)(arguments, key=lambda a: a.value.real)
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
    return Approx(value, (top.error + abs(value) * (b.error / abs(b.value) + _EPS)) / abs(bottom) + _EPS * abs(value))


def _gamma(x: Approx) -> Approx:
    if abs(x.value.imag) > 1e-9 or x.value.real > 165:
        raise NoValue("a factorial")
    value = math.gamma(x.value.real + 1)
    return Approx(complex(value), abs(value) * (1e-13 + 8 * x.error * (1 + abs(x.value))))
