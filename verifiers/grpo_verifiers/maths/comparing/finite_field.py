"""Exact comparison without expanding anything: both sides are mapped into a finite field.

The map sends numbers to their residues, symbols to fixed residues and keeps sums, products, rational powers of
positive rationals, `i`, and powers with symbolic exponents (`e^{x+1} = e e^x`), because P = 2Q + 1 with both prime and
every prime up to `SMOOTH` a square: exponents live modulo Q. Equal trees have equal images; unequal ones agree with a
chance near 2^-80, since P is drawn anew in every process: who knew it could write `x^P` for `x`. Functions the map does
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
from grpo_verifiers.maths.reading.tree import ONE, WHOLE_LETTERS, Node, children, symbols

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
SMOOTH = 67
_SQUARES = math.prod(prime for prime in _PRIMES if prime <= SMOOTH)
_P = _Q = 0
"""Drawn when the first field is made; 119 bits, which Python holds in four digits."""


def _draw_prime() -> None:
    """Choose P: modulo a prime below `SMOOTH` it is minus a square, so that the prime is a square modulo it."""
    global _P, _Q
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
            _P, _Q = p, q
            return


class NoImage(ArithmeticError):
    """A division by zero in the field, or a node that has no image."""


Pair = tuple[int, int]
"""re + im * i modulo P; -1 is no square modulo P."""


@lru_cache(maxsize=50_000)
def _draw(kind: str, key: str) -> int:
    """A residue that looks random but depends on the text only: a permutation polynomial of its bytes."""
    seed = int.from_bytes(f"{kind}\x00{key}".encode("utf-8", "replace"), "big")
    return pow(seed + 0x9E3779B97F4A7C15, 65_537, _P)


def _times(a: Pair, b: Pair) -> Pair:
    if a[1] == 0 and b[1] == 0:
        return (a[0] * b[0] % _P, 0)
    return ((a[0] * b[0] - a[1] * b[1]) % _P, (a[0] * b[1] + a[1] * b[0]) % _P)


def _inverse(a: Pair) -> Pair:
    norm = (a[0] * a[0] + a[1] * a[1]) % _P
    if norm == 0:
        raise NoImage("a division by zero")
    scale = pow(norm, -1, _P)
    return (a[0] * scale % _P, -a[1] * scale % _P)


def _pow(a: Pair, n: int) -> Pair:
    if n < 0:
        return _pow(_inverse(a), -n)
    if a[1] == 0:
        return (pow(a[0], n, _P), 0)
    # the order of the group of all re + im i but 0
    n %= _P * _P - 1
    result: Pair = (1, 0)
    while n:
        if n & 1:
            result = _times(result, a)
        a = _times(a, a)
        n >>= 1
    return result


_QUOTIENTS = {"tan": ("sin", "cos"), "cot": ("cos", "sin"), "sec": ("", "cos"), "csc": ("", "sin")}


def _quotient(node: Node) -> Node:
    """`tan x` as `sin x / cos x`, and so on."""
    top, bottom = _QUOTIENTS[node[1]]
    return ("/", ("f", top, node[2]) if top else ONE, ("f", bottom, node[2]))


def _fraction(value: Fraction) -> Pair:
    bottom = value.denominator % _P
    if bottom == 0:
        raise NoImage("a division by zero")
    return (value.numerator % _P if value.denominator == 1 else value.numerator * pow(bottom, -1, _P) % _P, 0)


def _exact(node: Node) -> Fraction | None:
    try:
        return rational(node)
    except (NotRational, TooBig):
        return None
    except Undefined as err:
        raise NoImage(str(err)) from err


class Field:
    """Maps trees; `opaque` records whether a function was drawn rather than mapped since the last reset."""

    def __init__(self, log10: bool = False, positive: bool = False, parities: Mapping[str, int] | None = None) -> None:
        if not _P:
            _draw_prime()
        self.log10 = log10
        self.positive = positive
        """Whether letters represent positive numbers only."""
        self.parities = parities or {}
        """Letters that are whole numbers, and whether each is odd: with one of them for its exponent a power has any base."""
        self.opaque = False

    def image(self, node: Node) -> Pair:
        """The image of a scalar.

        Raises:
            NoImage: it has none.
        """
        kind = node[0]
        if kind == "n":
            return _fraction(node[1])
        if kind == "s":
            # a square, so that it has a power to every exponent modulo Q, the order of the squares
            return (pow(_draw("s", node[1]), 2, _P), 0)
        if kind == "c":
            return (0, 1) if node[1] == "i" else (pow(_draw("c", node[1]), 2, _P), 0)
        if kind == "neg":
            re, im = self.image(node[1])
            return (-re % _P, -im % _P)
        if kind == "+":
            re = im = 0
            for term in node[1:]:
                a, b = self.image(term)
                re += a
                im += b
            return (re % _P, im % _P)
        if kind == "*":
            product: Pair = (1, 0)
            for factor in node[1:]:
                product = _times(product, self.image(factor))
            return product
        if kind == "/":
            return _times(self.image(node[1]), _inverse(self.image(node[2])))
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
            return top if base == ("c", "e") else _times(top, _inverse(self._ln(base)))
        if kind in ("!", "!!", "binom"):
            number = _exact(node)
            if number is not None:
                return _fraction(number)
            images = [self.image(a) for a in node[1:]]
            if node[0] == "binom":
                n, k = images
                other = ((n[0] - k[0]) % _P, (n[1] - k[1]) % _P)
                # C(n, k) = C(n, n - k)
                images = [n, min(k, other)]
            return self._drawn(node[0], *images)
        if kind == "deg":
            return _times(self.image(node[1]), _times(self.image(("c", "pi")), _fraction(Fraction(1, 180))))
        raise NoImage(kind)

    def _drawn(self, kind: str, *images: Pair) -> Pair:
        self.opaque = True
        return (pow(_draw(kind, repr(images)), 2, _P), 0)

    def _power(self, base: Node, exponent: Node) -> Pair:
        value = _exact(exponent)
        if value is not None and value.denominator == 1:
            image = self.image(base)
            if image == (0, 0) and value <= 0:
                raise NoImage("zero to a power that is not positive")
            return _pow(image, value.numerator)
        if value is not None:
            return self._rational_power(base, value, False)
        image = self.image(base)
        if image[1] == 0 and image[0] and (whole := _whole_exponent(exponent, self.parities)) is not None:
            return (pow(image[0], whole, _P), 0)
        # a letter to a power that is no number is positive, or the power represents a whole number: (ab)^n is a^n b^n
        if image == (0, 0) or not _is_square(base, True):
            return self._drawn("^", image, self.image(exponent))
        return (pow(image[0], _exponent(self, exponent), _P), 0)

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
        if exponent.denominator % _Q == 0:
            raise NoImage("an exponent")
        if number is not None and number < 0:
            positive: Node = ("n", -number, None)
            if exponent.denominator == 2:
                return _times(_pow((0, 1), exponent.numerator), self._rational_power(positive, exponent, is_root))
            # written as a root, the cube root of -8 is -2; as a power it is complex
            if is_root and exponent.denominator % 2 == 1:
                root = self._rational_power(positive, exponent, is_root)
                return (-root[0] % _P, -root[1] % _P) if exponent.numerator % 2 else root
            return self._drawn("root", self.image(base), _fraction(exponent))
        image = self.image(base)
        if not _is_square(base, self.positive):
            whole = int(exponent)  # x^(5/3) is x times the square of its cube root
            root = self._drawn("root", image, _fraction(Fraction(1, exponent.denominator)))
            return _times(_pow(image, whole), _pow(root, (exponent - whole).numerator))
        return (pow(image[0], exponent.numerator * pow(exponent.denominator, -1, _Q) % _Q, _P), 0)

    def _ln(self, node: Node) -> Pair:
        number = _exact(node)
        if number is not None:
            if number <= 0:
                if number == 0:
                    raise NoImage("logarithm of zero")
                return self._drawn("ln", _fraction(number))
            # by prime factors: ln 8 is 3 ln 2
            return ((self._ln_integer(number.numerator) - self._ln_integer(number.denominator)) % _P, 0)
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
            return tuple((parts[0][k] + sign * sum(p[k] for p in parts[1:])) % _P for k in (0, 1))  # type: ignore[return-value]
        if kind == "^" and node[2][0] != "c":
            self.opaque = self.opaque or bool(node[1][0] != "c" and _exact(node[1]) is None)
            return _times(self.image(node[2]), self._ln(node[1]))
        if kind == "root":
            return _times(_inverse(self.image(node[2])), self._ln(node[1]))
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
            return _times(self.image(node[2]), self._ln(("f", "abs", (node[1],))))
        if _exact(node) is not None:
            return self._ln(("n", abs(_exact(node) or Fraction(0)), None))
        return self._drawn("ln", self.image(("f", "abs", (node,))))

    def _ln_integer(self, n: int) -> int:
        total = 0
        for prime in _PRIMES:
            while n % prime == 0:
                n //= prime
                total += _draw("lnp", str(prime))
        if n > 1:
            self.opaque = self.opaque or n > _PRIMES[-1] ** 2  # perhaps a product of primes not tried
            total += _draw("lnp", str(n % _P))
        return total

    def _function(self, node: Node) -> Pair:
        name = node[1]
        if name in _QUOTIENTS and len(node[2]) == 1:
            return self.image(_quotient(node))
        images = [self.image(a) for a in node[2]]
        number = _exact(node)
        if number is not None:
            return _fraction(number)
        if name in ("max", "min"):
            images.sort()
        elif name in ("abs", "cos"):
            # even functions: x and -x have one image
            (re, im) = images[0]
            images = [min((re, im), (-re % _P, -im % _P))]
        elif name in ("sin", "arctan", "arcsin"):
            # odd functions: one of x and -x is drawn, the other is its negative
            (re, im) = images[0]
            if (re, im) == (0, 0):
                return (0, 0)
            other = (-re % _P, -im % _P)
            if other < (re, im):
                image = self._drawn(f"f{name}", other)
                return (-image[0] % _P, -image[1] % _P)
        return self._drawn(f"f{name}", *images)


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
        return is_known and not _has_i(node[2]) and _is_square(node[1], positive)
    return bool(kind == "s" or (kind == "c" and node[1] != "i"))


def _has_i(node: Node) -> bool:
    return node == ("c", "i") or (node[0] not in ("n", "s", "c") and any(map(_has_i, children(node))))


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
    return not _has_i(node) and all(symbols(part) or _is_positive(part) for part in parts)


def _is_positive(node: Node) -> bool:
    """Whether a number without letters is positive: floats know its sign where it is clear of zero."""
    try:
        value, error = approximate(node, {})
    except NoValue:
        return False
    return value.real > 8 * error and abs(value.imag) <= 8 * error


def _whole_exponent(node: Node, parities: Mapping[str, int]) -> int | None:
    """The image modulo P - 1, the order of all residues, of a polynomial in letters that are whole numbers; None for others.

    Modulo Q it is that of `_exponent`, so that both maps give one image to a power.
    """
    kind = node[0]
    if kind == "n":
        return node[1].numerator % (2 * _Q) if node[1].denominator == 1 else None
    if kind == "s":
        value = _draw("exponent", node[1]) % _Q
        # Q is odd: the two residues modulo 2 Q differ in parity
        return None if node[1] not in parities else value if value % 2 == parities[node[1]] else value + _Q
    if kind in ("neg", "+", "*"):
        parts = [_whole_exponent(part, parities) for part in node[1:]]
        if None in parts:
            return None
        found = math.prod(parts) if kind == "*" else sum(parts)  # type: ignore[arg-type]
        return (-found if kind == "neg" else found) % (2 * _Q)
    return None


def whole_names(node: Node) -> set[str]:
    """Letters for whole numbers that are exponents of what need not be positive: `n` in `(x - 1)^n`."""
    found: set[str] = set()
    stack = [node]
    while stack:
        at = stack.pop()
        if at[0] == "^" and not _is_square(at[1], True):
            found |= symbols(at[2]) & WHOLE_LETTERS
        if at[0] not in ("n", "s", "c"):
            stack.extend(children(at))
    return found


def _exponent(field: Field, node: Node) -> int:
    """The image of an exponent modulo Q."""
    kind = node[0]
    if kind == "n":
        bottom: int = node[1].denominator
        if bottom % _Q == 0:
            raise NoImage("an exponent")
        top: int = node[1].numerator
        return top * pow(bottom, -1, _Q) % _Q
    if kind == "s" or (kind == "c" and node[1] != "i"):
        return _draw("exponent", node[1]) % _Q
    if kind == "neg":
        return -_exponent(field, node[1]) % _Q
    if kind == "+":
        return sum(_exponent(field, term) for term in node[1:]) % _Q
    if kind == "*":
        product = 1
        for factor in node[1:]:
            product = product * _exponent(field, factor) % _Q
        return product
    if kind == "/":
        bottom_image = _exponent(field, node[2])
        if bottom_image == 0:
            raise NoImage("a division by zero")
        return _exponent(field, node[1]) * pow(bottom_image, -1, _Q) % _Q
    if kind == "^":
        n = _exact(node[2])
        if n is not None and n.denominator == 1 and n >= 0:
            return pow(_exponent(field, node[1]), n.numerator, _Q)
    field.opaque = True
    return _draw("exponent", repr(field.image(node))) % _Q
