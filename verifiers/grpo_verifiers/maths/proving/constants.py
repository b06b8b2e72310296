"""Is an algebraic number zero? An interval that shuts zero out says no, one below the number's separation bound says yes.

A number that is not zero cannot be smaller than a bound that follows from how it is written (C. Burnikel, S. Funke,
K. Mehlhorn, S. Schirra, S. Schmitt, "A separation bound for real algebraic expressions", ESA 2001): E is U / L with
algebraic integers whose conjugates are all at most u and l in size; the degree of U is at most D, the product of the
indices of all roots; so |E| >= 1 / (u^(D-1) l). Sines, cosines and powers of e at rational angles are made of roots of
unity, whose conjugates are roots of unity. No number of digits is ever taken for a proof.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

from mpmath import iv

from grpo_verifiers.maths.comparing.rationals import NotRational, Undefined, rational
from grpo_verifiers.maths.reading.tokens import TooBig
from grpo_verifiers.maths.reading.tree import ONE, Node, number

MOST_BITS = 60_000
"""Precision up to which a bound is tried, and the largest power; the deadline of the proof may cut in before."""
ANGLE_BITS = 5_000
"""The same where sines and cosines are computed, which takes longer."""
MOST_ROOT = 1_000
_PI, _I, _E = ("c", "pi"), ("c", "i"), ("c", "e")


class NotAlgebraic(ValueError):
    """A number that is not known to be algebraic, or none."""


class TooWide(ArithmeticError):
    """An interval does not settle which root is meant."""


class Enclosed(NamedTuple):
    """A number U / L: an interval that holds it, and logarithms to base 2 of u and l."""

    value: Any
    top: float
    bottom: float


def is_zero(node: Node) -> bool | None:
    """Whether a number is zero; None where its bound asks for too many digits.

    Raises:
        NotAlgebraic: it is not known to be an algebraic number.
    """
    bits = most = 128
    while bits <= most:
        iv.prec = bits
        reader = _Reader()
        try:
            found = reader.read(node)
        except TooWide:
            bits, most = 4 * bits, ANGLE_BITS
            continue
        except (NotRational, TooBig, Undefined, ZeroDivisionError) as err:
            raise NotAlgebraic(str(err)) from err
        size = abs(found.value)
        if size.a > 0:
            return False
        needed = math.ceil(max(0.0, (min(reader.degree, MOST_BITS) - 1) * found.top + found.bottom)) + 2
        most = MOST_BITS if reader.order == 1 else ANGLE_BITS
        if needed <= most and size.b < iv.mpf(2) ** -needed:
            return True
        bits = max(2 * bits, needed + 128) if needed <= most else 4 * bits
    return None


class _Reader:
    """Intervals and bounds of a tree's numbers; roots and angles met on the way make up the degree."""

    def __init__(self) -> None:
        self._roots: dict[tuple[Node, int], int] = {}
        self.order = 1
        """All roots of unity that were met are powers of one of this order."""

    @property
    def degree(self) -> int:
        """What the degree of the number is at most."""
        return math.prod(self._roots.values()) * _totient(self.order)

    def read(self, node: Node) -> Enclosed:
        """The number of a tree.

        Raises:
            NotAlgebraic, NotRational, TooBig, Undefined, ZeroDivisionError: it is none that is known.
            TooWide: more digits may tell.
        """
        kind = node[0]
        if kind == "c" and node != _I:
            raise NotAlgebraic(node[1])
        if kind == "c":
            return self._unity(Fraction(1, 2))
        if kind == "neg":
            found = self.read(node[1])
            return found._replace(value=-found.value)
        if kind == "+":
            return _sum([self.read(part) for part in node[1:]])
        if kind == "*":
            parts = [self.read(part) for part in node[1:]]
            value = math.prod((part.value for part in parts), start=iv.mpf(1))
            return Enclosed(value, sum(part.top for part in parts), sum(part.bottom for part in parts))
        if kind == "/":
            return _quotient(self.read(node[1]), self.read(node[2]))
        if kind == "^" and node[1] == _E:
            return self._unity(_turns(_coefficient(node[2], _I)))
        if kind == "^":
            return self._raised(node[1], rational(node[2]), False)
        if kind == "root":
            index = rational(node[2])
            if index == 0:
                raise Undefined("a root of order zero")
            return self._raised(node[1], 1 / index, True)
        if kind == "f" and len(node[2]) == 1 and node[1] not in ("floor", "ceil"):
            return self._function(node[1], node[2][0])
        return _exact(rational(node))

    def _raised(self, base: Node, exponent: Fraction, is_root: bool) -> Enclosed:
        found, (n, index) = self.read(base), exponent.as_integer_ratio()
        if index > MOST_ROOT or abs(n) > MOST_BITS:
            raise TooBig("an exponent")
        if index > 1:
            self._roots[base, index] = index
            found = _rooted(found, index, is_root)
        found = found if n >= 0 else _quotient(_exact(Fraction(1)), found)
        return Enclosed(found.value ** abs(n), found.top * abs(n), found.bottom * abs(n))

    def _angle(self, turns: Fraction) -> Any:
        """So many times pi; its sine and cosine are made of a root of unity."""
        order = turns.denominator * (2 if turns.numerator % 2 else 1)
        if order > MOST_BITS:
            raise TooBig("an angle")
        self.order = math.lcm(self.order, order, 4)
        return iv.pi * turns.numerator / turns.denominator

    def _unity(self, turns: Fraction) -> Enclosed:
        """The power of e at so many times pi i."""
        angle = self._angle(turns)
        return Enclosed(iv.mpc(iv.cos(angle), iv.sin(angle)), 0.0, 0.0)

    def _function(self, name: str, argument: Node) -> Enclosed:
        if name == "abs":
            found = self.read(argument)
            if isinstance(found.value, iv.mpc):
                raise NotAlgebraic("the size of a complex number")
            return found._replace(value=abs(found.value))
        if name not in ("cos", "sin", "tan", "cot", "sec", "csc"):
            raise NotAlgebraic(name)
        angle, one = self._angle(_turns(argument)), _exact(Fraction(1))
        cosine = one if name == "csc" else Enclosed(iv.cos(angle), 1.0, 1.0)
        sine = one if name in ("cos", "sec") else Enclosed(iv.sin(angle), 1.0, 1.0)
        if name in ("cos", "sin"):
            return cosine if name == "cos" else sine
        return _quotient(cosine, sine) if name in ("cot", "csc") else _quotient(sine, cosine)


def _exact(value: Fraction) -> Enclosed:
    top, bottom = value.as_integer_ratio()
    return Enclosed(iv.mpf(top) / bottom, math.log2(abs(top) or 1), math.log2(bottom))


def _sum(parts: list[Enclosed]) -> Enclosed:
    bottom = sum(part.bottom for part in parts)
    tops = [part.top + bottom - part.bottom for part in parts]
    most = max(tops)
    total = sum((part.value for part in parts), start=iv.mpf(0))
    return Enclosed(total, most + math.log2(sum(2.0 ** (top - most) for top in tops)), bottom)


def _quotient(a: Enclosed, b: Enclosed) -> Enclosed:
    if abs(b.value).a == 0:
        raise TooWide("a divisor that may be zero")
    return Enclosed(a.value / b.value, a.top + b.bottom, a.bottom + b.top)


def _rooted(found: Enclosed, index: int, is_root: bool) -> Enclosed:
    """A root as it is read everywhere: the principal one, or the real one where an odd root sign stands over a negative number."""
    if found.top >= found.bottom:
        top, bottom = (found.top + (index - 1) * found.bottom) / index, found.bottom
    else:
        top, bottom = found.top, ((index - 1) * found.top + found.bottom) / index
    value = found.value
    if isinstance(value, iv.mpc):
        if value.imag.a <= 0 <= value.imag.b and value.real.a <= 0:
            raise TooWide("which side of a cut")
        root = iv.exp(iv.log(value) / index)
    elif value.a > 0 or (value.a == value.b == 0):
        root = iv.sqrt(value) if index == 2 or value.b == 0 else iv.exp(iv.log(value) / index)
    elif value.b < 0:
        root = iv.sqrt(-value) if index == 2 else iv.exp(iv.log(-value) / index)
        is_real = is_root and index % 2 == 1
        root = -root if is_real else root * iv.mpc(iv.cos(iv.pi / index), iv.sin(iv.pi / index))
    else:
        raise TooWide("the sign of a radicand")
    return Enclosed(root, top, bottom)


def _turns(angle: Node) -> Fraction:
    """How many times pi an angle is.

    Raises:
        NotAlgebraic, NotRational: it is no rational multiple.
    """
    return rational(_coefficient(angle, _PI))


def _coefficient(node: Node, leaf: Node) -> Node:
    """What a constant is multiplied with, as the tree shows it.

    Raises:
        NotAlgebraic: the tree is no multiple of it.
    """
    kind = node[0]
    if node == leaf:
        return ONE
    if kind == "neg":
        return ("neg", _coefficient(node[1], leaf))
    if kind == "+":
        return ("+", *(_coefficient(part, leaf) for part in node[1:]))
    if kind == "/":
        return ("/", _coefficient(node[1], leaf), node[2])
    if kind == "deg" and leaf == _PI:
        return ("/", node[1], number(180))
    if kind == "*":
        for i, part in enumerate(node[1:], 1):
            if part == leaf or part[0] in ("/", "*", "neg", "+", "deg"):
                try:
                    return ("*", *node[1:i], _coefficient(part, leaf), *node[i + 1 :])
                except NotAlgebraic:
                    continue
    raise NotAlgebraic("no multiple")


def _totient(n: int) -> int:
    found, rest, prime = n, n, 2
    while rest > 1:
        prime = prime if prime * prime <= rest else rest
        if rest % prime == 0:
            found -= found // prime
            while rest % prime == 0:
                rest //= prime
        prime += 1
    return found
