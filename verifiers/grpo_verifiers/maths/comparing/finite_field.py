"""Exact comparison without expanding anything: both sides are mapped into a finite field.

The map sends numbers to their residues, symbols to fixed residues and keeps sums, products, rational powers of
positive rationals, `i`, and powers with symbolic exponents (`e^{x+1} = e e^x`), because P = 2Q + 1 with both prime and
every prime up to `SMOOTH` a square: exponents live modulo Q. Equal trees have equal images; unequal ones agree with a
chance near 2^-80 under each of two P, drawn anew in every process: who knew one could write `x^P` for `x`. Functions the map does
not know become residues drawn from their argument's image, so that `sin(x+1)` still equals `sin(1+x)`; then a difference
proves nothing and the image is marked (`opaque`). So do roots of what is not known to be positive: the field knows no
signs. What is opaque depends on the tree alone, never on P.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from grpo_verifiers.maths.comparing.values import NotRational, NoValue, Undefined, approximate, rational
from grpo_verifiers.maths.reading.tokens import TooBig
from grpo_verifiers.maths.reading.tree import ONE, WHOLE_LETTERS, Node, symbols, walk

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
SMOOTH = 67
_SQUARES = math.prod(prime for prime in _PRIMES if prime <= SMOOTH)
_PRIMES_DRAWN: list[tuple[int, int]] = []
"""Two pairs (P, Q) a process, drawn when the first field is made; 119 bits, which Python holds in four digits."""
Pair = tuple[int, int]
"""re + im * i modulo P; -1 is no square modulo P."""
_QUOTIENTS = {"tan": ("sin", "cos"), "cot": ("cos", "sin"), "sec": ("", "cos"), "csc": ("", "sin")}


def _draw_primes() -> tuple[int, int]:
    """Choose P: modulo a prime below `SMOOTH` it is minus a square, so that the prime is a square modulo it."""
    step = 4 * _SQUARES
    while True:
        root = int.from_bytes(os.urandom(16), "big")
        start = -root * root % step
        if math.gcd(start, step) == math.gcd(start // 2, _SQUARES) == 1:
            break
    while True:
        p = start + step * (int.from_bytes(os.urandom(5), "big") >> 6)
        q = p // 2
        if pow(2, q, p) == 1 and all(pow(base, q - 1, q) == pow(base, p - 1, p) == 1 for base in _PRIMES[:12]):
            return p, q


class NoImage(ArithmeticError):
    """A division by zero in the field, or a node that has no image."""


@lru_cache(maxsize=50_000)
def _draw(kind: str, key: str, p: int) -> int:
    """A residue that looks random but depends on the text and P only: a permutation polynomial of its bytes."""
    seed = int.from_bytes(f"{kind}\x00{key}".encode("utf-8", "replace"), "big")
    return pow(seed + 0x9E3779B97F4A7C15, 65_537, p)


def _quotient(node: Node) -> Node:
    """`tan x` as `sin x / cos x`, and so on."""
    top, bottom = _QUOTIENTS[node[1]]
    return ("/", ("f", top, node[2]) if top else ONE, ("f", bottom, node[2]))


def _exact(node: Node) -> Fraction | None:
    try:
        return rational(node)
    except (NotRational, TooBig):
        return None
    except Undefined as err:
        raise NoImage(str(err)) from err


class Field:
    """Maps trees; `opaque` records whether a function was drawn rather than mapped since the last reset."""

    def __init__(self, log10: bool = False, positive: bool = False, turn: int = 0) -> None:
        """`turn`: by which of the two primes; equal under both is equal."""
        while len(_PRIMES_DRAWN) < 2:
            _PRIMES_DRAWN.append(_draw_primes())
        self.p, self.q = _PRIMES_DRAWN[turn]
        self.log10 = log10
        self.positive = positive
        """Whether letters represent positive numbers only."""
        self.parities: Mapping[str, int] = {}
        """Letters that are whole numbers, and whether each is odd: with one of them for its exponent a power has any base."""
        self.opaque = False

    def draw(self, kind: str, key: str) -> int:
        """A residue drawn for a text."""
        return _draw(kind, key, self.p)

    def times(self, a: Pair, b: Pair) -> Pair:
        """The product of two images."""
        if a[1] == 0 and b[1] == 0:
            return (a[0] * b[0] % self.p, 0)
        return ((a[0] * b[0] - a[1] * b[1]) % self.p, (a[0] * b[1] + a[1] * b[0]) % self.p)

    def inverse(self, a: Pair) -> Pair:
        """What gives 1 with this image.

        Raises:
            NoImage: it is zero.
        """
        norm = (a[0] * a[0] + a[1] * a[1]) % self.p
        if norm == 0:
            raise NoImage("a division by zero")
        scale = pow(norm, -1, self.p)
        return (a[0] * scale % self.p, -a[1] * scale % self.p)

    def _pow(self, a: Pair, n: int) -> Pair:
        if n < 0:
            return self._pow(self.inverse(a), -n)
        if a[1] == 0:
            return (pow(a[0], n, self.p), 0)
        # the order of the group of all re + im i but 0
        n %= self.p * self.p - 1
        result: Pair = (1, 0)
        while n:
            if n & 1:
                result = self.times(result, a)
            a = self.times(a, a)
            n >>= 1
        return result

    def _fraction(self, value: Fraction) -> Pair:
        top, bottom = value.as_integer_ratio()
        return (top % self.p, 0) if bottom == 1 else self.times((top, 0), self.inverse((bottom % self.p, 0)))

    def image(self, node: Node) -> Pair:
        """The image of a scalar.

        Raises:
            NoImage: it has none.
        """
        kind = node[0]
        if kind == "n":
            return self._fraction(node[1])
        if kind == "s":
            # a square, so that it has a power to every exponent modulo Q, the order of the squares
            return (pow(self.draw("s", node[1]), 2, self.p), 0)
        if kind == "c":
            return (0, 1) if node[1] == "i" else (pow(self.draw("c", node[1]), 2, self.p), 0)
        if kind == "neg":
            re, im = self.image(node[1])
            return (-re % self.p, -im % self.p)
        if kind == "+":
            re = im = 0
            for term in node[1:]:
                a, b = self.image(term)
                re += a
                im += b
            return (re % self.p, im % self.p)
        if kind == "*":
            product: Pair = (1, 0)
            for factor in node[1:]:
                product = self.times(product, self.image(factor))
            return product
        if kind == "/":
            return self.times(self.image(node[1]), self.inverse(self.image(node[2])))
        if kind == "^":
            return self._power(node[1], node[2])
        if kind == "root":
            return self._root(node[1], node[2])
        if kind == "f":
            return self._function(node)
        if kind == "log":
            base = node[1]
            top = self._ln(node[2])
            if base is None:
                base = ("n", Fraction(10), None) if self.log10 else ("c", "e")
            return top if base == ("c", "e") else self.times(top, self.inverse(self._ln(base)))
        if kind in ("!", "!!", "binom"):
            number = _exact(node)
            if number is not None:
                return self._fraction(number)
            images = [self.image(a) for a in node[1:]]
            if node[0] == "binom":
                n, k = images
                other = ((n[0] - k[0]) % self.p, (n[1] - k[1]) % self.p)
                # C(n, k) = C(n, n - k)
                images = [n, min(k, other)]
            return self._drawn(node[0], *images)
        if kind == "deg":
            return self.times(
                self.image(node[1]), self.times(self.image(("c", "pi")), self._fraction(Fraction(1, 180)))
            )
        raise NoImage(kind)

    def _drawn(self, kind: str, *images: Pair) -> Pair:
        self.opaque = True
        return (pow(self.draw(kind, repr(images)), 2, self.p), 0)

    def _power(self, base: Node, exponent: Node) -> Pair:
        value = _exact(exponent)
        if value is not None and value.denominator == 1:
            image = self.image(base)
            if image == (0, 0) and value <= 0:
                raise NoImage("zero to a power that is not positive")
            return self._pow(image, value.numerator)
        if value is not None:
            return self._rational_power(base, value, False)
        image = self.image(base)
        if image[1] == 0 and image[0] and self._is_whole(exponent):
            return (pow(image[0], self._exponent(exponent, 2 * self.q), self.p), 0)
        # a letter to a power that is no number is positive, or the power represents a whole number: (ab)^n is a^n b^n
        if image == (0, 0) or not _is_square(base, True):
            return self._drawn("^", image, self.image(exponent))
        return (pow(image[0], self._exponent(exponent, self.q), self.p), 0)

    def _root(self, base: Node, index: Node) -> Pair:
        n = _exact(index)
        if n is None or n == 0:
            return self._drawn("root", self.image(base), self.image(index))
        return self._rational_power(base, 1 / n, True)

    def _rational_power(self, base: Node, exponent: Fraction, is_root: bool) -> Pair:
        number = _exact(base)
        if number == 0:
            if exponent <= 0:
                raise NoImage("zero to a power that is not positive")
            return (0, 0)
        if exponent.denominator % self.q == 0:
            raise NoImage("an exponent")
        if number is not None and number < 0:
            positive: Node = ("n", -number, None)
            if exponent.denominator == 2:
                return self.times(
                    self._pow((0, 1), exponent.numerator), self._rational_power(positive, exponent, is_root)
                )
            # written as a root, the cube root of -8 is -2; as a power it is complex
            if is_root and exponent.denominator % 2 == 1:
                root = self._rational_power(positive, exponent, is_root)
                return (-root[0] % self.p, -root[1] % self.p) if exponent.numerator % 2 else root
            return self._drawn("root", self.image(base), self._fraction(exponent))
        image = self.image(base)
        if not _is_square(base, self.positive):
            whole = int(exponent)  # x^(5/3) is x times the square of its cube root
            root = self._drawn("root", image, self._fraction(Fraction(1, exponent.denominator)))
            return self.times(self._pow(image, whole), self._pow(root, (exponent - whole).numerator))
        return (pow(image[0], exponent.numerator * pow(exponent.denominator, -1, self.q) % self.q, self.p), 0)

    def _ln(self, node: Node) -> Pair:
        number = _exact(node)
        if number is not None:
            if number <= 0:
                if number == 0:
                    raise NoImage("logarithm of zero")
                return self._drawn("ln", self._fraction(number))
            # by prime factors: ln 8 is 3 ln 2
            return ((self._ln_integer(number.numerator) - self._ln_integer(number.denominator)) % self.p, 0)
        kind = node[0]
        if node == ("c", "e"):
            return (1, 0)
        # the logarithm of a product is a sum for positive factors only, so that a difference proves nothing
        if not _is_apart(node):
            return self._drawn("ln", self.image(node))
        if kind in ("*", "/"):
            self.opaque = True
            parts = [self._ln(part) for part in node[1:]]
            sign = 1 if kind == "*" else -1
            return tuple((parts[0][k] + sign * sum(p[k] for p in parts[1:])) % self.p for k in (0, 1))  # type: ignore[return-value]
        if kind == "^" and node[2][0] != "c":
            self.opaque = self.opaque or bool(node[1][0] != "c" and _exact(node[1]) is None)
            return self.times(self.image(node[2]), self._ln(node[1]))
        if kind == "root":
            return self.times(self.inverse(self.image(node[2])), self._ln(node[1]))
        if kind == "f" and node[1] == "abs":
            return self._ln_abs(node[2][0])
        if kind == "f" and node[1] in _QUOTIENTS:
            return self._ln(_quotient(node))
        return self._drawn("ln", self.image(node))

    def _ln_abs(self, node: Node) -> Pair:
        """The logarithm of an absolute value, taken apart at products and powers."""
        if node[0] == "neg":
            return self._ln_abs(node[1])
        if node[0] == "f" and node[1] in _QUOTIENTS:
            return self._ln_abs(_quotient(node))
        if node[0] in ("*", "/"):
            parts: list[Node] = [("f", "abs", (part,)) for part in node[1:]]
            return self._ln((node[0], *parts))
        if node[0] == "^" and _exact(node[2]) is not None:
            return self.times(self.image(node[2]), self._ln(("f", "abs", (node[1],))))
        if _exact(node) is not None:
            return self._ln(("n", abs(_exact(node) or Fraction(0)), None))
        return self._drawn("ln", self.image(("f", "abs", (node,))))

    def _ln_integer(self, n: int) -> int:
        total = 0
        for prime in _PRIMES:
            while n % prime == 0:
                n //= prime
                total += self.draw("lnp", str(prime))
        if n > 1:
            self.opaque = self.opaque or n > _PRIMES[-1] ** 2  # perhaps a product of primes not tried
            total += self.draw("lnp", str(n % self.p))
        return total

    def _function(self, node: Node) -> Pair:
        name = node[1]
        if name in _QUOTIENTS and len(node[2]) == 1:
            return self.image(_quotient(node))
        images = [self.image(a) for a in node[2]]
        number = _exact(node)
        if number is not None:
            return self._fraction(number)
        if name in ("max", "min"):
            images.sort()
        elif name in ("abs", "cos"):
            # even functions: x and -x have one image
            (re, im) = images[0]
            images = [min((re, im), (-re % self.p, -im % self.p))]
        elif name in ("sin", "arctan", "arcsin"):
            # odd functions: one of x and -x is drawn, the other is its negative
            (re, im) = images[0]
            if (re, im) == (0, 0):
                return (0, 0)
            other = (-re % self.p, -im % self.p)
            if other < (re, im):
                image = self._drawn(f"f{name}", other)
                return (-image[0] % self.p, -image[1] % self.p)
        return self._drawn(f"f{name}", *images)

    def _is_whole(self, node: Node) -> bool:
        """Whether an exponent is a polynomial in letters that are whole numbers."""
        if node[0] in ("neg", "+", "*"):
            return all(map(self._is_whole, node[1:]))
        return (node[0] == "n" and node[1].denominator == 1) or (node[0] == "s" and node[1] in self.parities)

    def _exponent(self, node: Node, order: int) -> int:
        """The image of an exponent: modulo Q, the order of the squares, or of a whole one modulo P - 1, that of all residues.

        Modulo Q both are one, so that both maps give one image to a power.
        """
        kind = node[0]
        if kind == "n":
            if node[1].denominator % self.q == 0:
                raise NoImage("an exponent")
            return (
                node[1].numerator * pow(node[1].denominator, -1, order) % order
                if node[1].denominator > 1
                else int(node[1]) % order
            )
        if kind == "s" or (kind == "c" and node[1] != "i"):
            value = self.draw("exponent", node[1]) % self.q
            # Q is odd: the two residues modulo 2 Q differ in parity
            return value + self.q if order > self.q and value % 2 != self.parities[node[1]] else value
        if kind == "neg":
            return -self._exponent(node[1], order) % order
        if kind in ("+", "*"):
            parts = [self._exponent(part, order) for part in node[1:]]
            return (math.prod(parts) if kind == "*" else sum(parts)) % order
        if kind == "/":
            bottom = self._exponent(node[2], order)
            if bottom == 0:
                raise NoImage("a division by zero")
            return self._exponent(node[1], order) * pow(bottom, -1, order) % order
        if kind == "^":
            n = _exact(node[2])
            if n is not None and n.denominator == 1 and n >= 0:
                return pow(self._exponent(node[1], order), n.numerator, order)
        self.opaque = True
        return self.draw("exponent", repr(self.image(node))) % self.q


def _is_square(node: Node, positive: bool) -> bool:
    """Whether a value is positive and its image a square, so that roots and powers of products are products.

    `positive`: letters are; otherwise one letter may be either, since the root of 4x is 2 sqrt(x) but that of xy not always
    sqrt(x) sqrt(y).
    """
    number = _exact(node)
    if number is not None:
        return number > 0 and _is_smooth(number.numerator) and _is_smooth(number.denominator)
    kind = node[0]
    if kind in ("*", "/"):
        is_known = positive or sum(bool(symbols(part)) for part in node[1:]) < 2
        return is_known and all(_is_square(part, positive) for part in node[1:])
    if kind in ("^", "root"):
        is_known = positive or not symbols(node[1])
        return is_known and ("c", "i") not in walk(node[2]) and _is_square(node[1], positive)
    return bool(kind == "s" or (kind == "c" and node[1] != "i"))


def _is_smooth(n: int) -> bool:
    """Whether every prime factor is below `SMOOTH`; a factor found is squared, so that a power of two takes few steps."""
    found = _SQUARES
    while (found := math.gcd(n, found)) > 1:
        n, found = n // found, found * found
        if n > 1 and math.gcd(n, found) == 1:
            found = _SQUARES
    return n == 1


def _is_apart(node: Node) -> bool:
    """Whether the logarithm of a product or power may be taken apart: letters are positive there, numbers have to be."""
    if node[0] not in ("*", "/", "^", "root"):
        return True
    parts = node[1:] if node[0] in ("*", "/") else node[1:2]
    return ("c", "i") not in walk(node) and all(symbols(part) or _is_positive(part) for part in parts)


def _is_positive(node: Node) -> bool:
    """Whether a number without letters is positive: floats know its sign where it is clear of zero."""
    try:
        value, error = approximate(node, {})
    except NoValue:
        return False
    return value.real > 8 * error and abs(value.imag) <= 8 * error


def whole_names(node: Node) -> set[str]:
    """Letters for whole numbers that are exponents of what need not be positive: `n` in `(x - 1)^n`."""
    powers = [at for at in walk(node) if at[0] == "^" and not _is_square(at[1], True)]
    return {name for power in powers for name in symbols(power[2]) & WHOLE_LETTERS}
