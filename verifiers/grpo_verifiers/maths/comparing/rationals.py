"""Rational value of a tree, exactly, within bounds on the size of every number that occurs."""

from __future__ import annotations

import math
from fractions import Fraction

from grpo_verifiers.maths.reading.tokens import TooBig
from grpo_verifiers.maths.reading.tree import Node

BITS = 60_000
"""Largest numerator or denominator; beyond it numbers are compared in a finite field or not at all."""
FACTORIAL = 3_000


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
        return _power(rational(node[1]), rational(node[2]))
    if kind == "root":
        index = rational(node[2])
        if index == 0:
            raise Undefined("a root of order zero")
        return _power(rational(node[1]), 1 / index)
    if kind == "!":
        return Fraction(math.factorial(_whole(node[1], FACTORIAL)))
    if kind == "!!":
        n = _whole(node[1], FACTORIAL)
        return Fraction(math.prod(range(n, 0, -2)))
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


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _root(base, exponent)
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


def _root(base: Fraction, exponent: Fraction) -> Fraction:
    """base ** exponent if that is rational."""
    index = exponent.denominator
    if index > 64 or (base < 0 and index % 2 == 0):
        raise NotRational("an irrational root")
    top, bottom = _integer_root(abs(base.numerator), index), _integer_root(base.denominator, index)
    root = Fraction(top, bottom)
    return _power(-root if base < 0 else root, Fraction(exponent.numerator))


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
