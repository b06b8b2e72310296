"""Proof of equality by computer algebra. Imported only in the child process; trees are built here, never parsed by sympy.

How this works: the pool calls `load` once and `settle` for every task. A pair arrives only after floats agreed at sample
points, so the question is whether two expressions that look equal are. Digits only show that expressions differ. That
they are equal follows from a separation bound (`is_zero`) or from exact rewriting (`prove`); sympy's own tests for zero,
which end at some number of digits, are not asked.
"""

from __future__ import annotations

import logging
import math
import operator
import os
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import sympy as sp
from mpmath import iv

from grpo_verifiers.maths.comparing.scalars import has_radical
from grpo_verifiers.maths.comparing.values import NotRational, Undefined, rational
from grpo_verifiers.maths.reading.tokens import TooBig
from grpo_verifiers.maths.reading.tree import ONE, Node, number, symbols, walk

MOST_BITS = 60_000
"""Precision up to which a bound is tried, and the largest power; the deadline of the proof may cut in before."""
ANGLE_BITS = 5_000
"""The same where sines and cosines are computed, which takes longer."""
MOST_ROOT = 1_000
_PI, _I, _E = ("c", "pi"), ("c", "i"), ("c", "e")


def load(config: object) -> tuple[Callable[[Any], str], None]:
    """The task of a pool: all that takes long to import, tried once, so that its caches are warm in every worker."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for stream in (1, 2):  # neither warns a user of what a completion says
            os.dup2(nowhere.fileno(), stream)
    logging.disable(logging.CRITICAL)
    # sympy recurses deeper than its expressions are
    sys.setrecursionlimit(3_000)
    from grpo_verifiers.maths.reading.tree import number

    two: Any = ("root", number(2), number(2))
    x: Any = ("s", "x")
    prove(("/", two, number(2)), ("/", number(1), two), False)
    prove(("f", "sin", (("*", number(2), x),)), ("*", number(2), ("*", ("f", "sin", (x,)), ("f", "cos", (x,)))), False)
    return settle, None


def settle(task: tuple[Any, bool]) -> str:
    """`s`: all pairs are proved equal, `n`: some are not equal, `u`: unproved; the fields of a `ProofTask`.

    Raises:
        MemoryError: the worker has no more; it gives way to a fresh one.
    """

    pairs, log10 = task
    found: set[bool | None] = set()
    for gold, answer in pairs:
        try:
            proof = prove(gold, answer, log10)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - computer algebra raises anything; then it has proved nothing
            proof = None
        if proof is False:
            return "n"
        found.add(proof)
    return "u" if None in found else "s"


MOST_NODES = 400
SURE_DIGITS = 15
MOST_DIGITS = 1_000
"""Digits up to which two numbers are distinguished; fewer for functions of letters, and of factorials, which take long."""
_FUNCTIONS = {
    "sin": sp.sin, "cos": sp.cos, "tan": sp.tan, "cot": sp.cot, "sec": sp.sec, "csc": sp.csc, "sinh": sp.sinh, "cosh": sp.cosh,
    "tanh": sp.tanh, "coth": sp.coth, "arcsin": sp.asin, "arccos": sp.acos, "arctan": sp.atan, "arccot": sp.acot, "arcsec": sp.asec,
    "arccsc": sp.acsc, "abs": sp.Abs, "floor": sp.floor, "ceil": sp.ceiling, "max": sp.Max, "min": sp.Min,
}  # fmt: skip
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "neg": operator.neg, "+": sp.Add, "*": sp.Mul, "/": operator.truediv, "^": sp.Pow, "!": sp.factorial, "!!": sp.factorial2,
    "binom": sp.binomial,
}  # fmt: skip


class Unbuildable(ValueError):
    """A node with no counterpart."""


class Builder:
    """Trees to sympy expressions with one set of assumptions for both sides."""

    def __init__(self, positive: bool, log10: bool) -> None:
        # the same for both sides: symbols of other assumptions would be other symbols, and nothing would cancel
        self.assumptions = {"positive": True} if positive else {"real": True}
        self.log10 = log10

    def build(self, node: Node) -> Any:
        """The expression of a scalar.

        Raises:
            Unbuildable: it is none.
        """
        kind = node[0]
        if kind == "n":
            return sp.Rational(node[1].numerator, node[1].denominator)
        if kind == "s":
            return sp.Symbol(node[1], **self.assumptions)
        if kind == "c":
            return {"pi": sp.pi, "e": sp.E, "i": sp.I}[node[1]]
        if kind in _OPERATIONS:
            return _OPERATIONS[kind](*map(self.build, node[1:]))
        if kind == "root":
            base, index = self.build(node[1]), self.build(node[2])
            # as it is read everywhere else here: the cube root of -8 is -2
            if index.is_Integer and index % 2 == 1:
                return sp.real_root(base, index)
            return sp.Pow(base, 1 / index)
        if kind == "log":
            base = node[1]
            top = sp.log(self.build(node[2]))
            if base is None:
                return top / sp.log(10) if self.log10 else top
            return top / sp.log(self.build(base))
        if kind == "f":
            arguments = [self.build(part) for part in node[2]]
            known = _FUNCTIONS.get(node[1])
            return known(*arguments) if known else sp.Function(node[1])(*arguments)
        if kind == "deg":
            return self.build(node[1]) * sp.pi / 180
        raise Unbuildable(kind)


def prove(gold: Node, answer: Node, log10: bool) -> bool | None:
    """Whether the two are equal; None where neither is shown."""
    names = sorted(symbols(gold) | symbols(answer))
    if not names:
        try:
            # one of too high a degree is beyond sympy as well
            return is_zero(("+", gold, ("neg", answer)))
        except NotAlgebraic:
            pass
    if sum(1 for node in (gold, answer) for _ in walk(node)) > MOST_NODES:
        return None
    positive = has_radical(gold) and has_radical(answer)
    builder = Builder(positive, log10)
    first, second = builder.build(gold), builder.build(answer)
    difference = first - second
    if difference == 0:
        return True
    most = 60 if difference.has(sp.factorial, sp.binomial, sp.factorial2) else 200 if names else MOST_DIGITS
    for point in _points(names, positive, difference.has(sp.asin, sp.acos)):
        places = {sp.Symbol(name, **builder.assumptions): value for name, value in point.items()}
        if _is_apart(difference.subs(places), most):
            return False
    # None and not False: that sympy finds no proof is none of the contrary
    if any(power.exp.free_symbols for power in difference.atoms(sp.Pow)) and _proves(_log_of, first / second):
        return True
    return any(_proves(step, difference) for step in _steps(difference)) or None


def _points(names: list[str], positive: bool, small: bool) -> list[dict[str, Any]]:
    """Where two expressions are distinguished by many digits; `small`: inside (0, 1), where inverse sines are real."""
    if not names:
        return [{}]
    near = {name: sp.Rational(5 + 7 * i, 11 + 7 * i) for i, name in enumerate(names)}
    if small:
        return [near]
    far = {name: sp.Rational(67 + 29 * i, 6 + i) for i, name in enumerate(names)}
    return [near, far] if positive else [near, far, {name: -value for name, value in far.items()}]


def _is_apart(difference: Any, most: int) -> bool:
    """Whether fifteen digits of a number are sure and not zero. Sympy takes more digits until they are, up to `most`."""
    parts = sp.N(difference, SURE_DIGITS, maxn=most).as_real_imag()
    return any(part.is_Float and part._prec > 3 * SURE_DIGITS and part != 0 for part in parts)


def _proves(step: Any, expression: Any) -> bool:
    """Whether one rewriting takes the expression to zero."""
    try:
        return bool(step(expression) == 0)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - sympy raises whatever its depths raise; then this step proves nothing
        return False


def _steps(expression: Any) -> list[Any]:
    """Cheapest first, and only what the functions in the expression call for."""
    steps: list[Any] = [sp.expand]
    if expression.has(sp.factorial, sp.binomial, sp.factorial2):
        steps.append(lambda found: sp.combsimp(sp.gammasimp(found)))
    if expression.has(
        sp.functions.elementary.trigonometric.TrigonometricFunction,
        sp.functions.elementary.hyperbolic.HyperbolicFunction,
    ):
        steps += [_exponentials, sp.trigsimp]
    if expression.has(sp.log):
        steps.append(_logs)
    if not expression.free_symbols:
        steps += [_tangent, sp.expand_complex]
    return [*steps, sp.simplify, lambda found: _logs(sp.factor(found, deep=True))]


def _tangent(expression: object) -> Any:
    """An angle smaller than one in size is zero if its tangent is."""
    if abs(sp.N(expression, 30)) > sp.Float("1e-20"):
        return expression
    return sp.simplify(sp.expand_trig(sp.tan(expression)))


def _log_of(quotient: Any) -> Any:
    """Zero where two products of powers are equal: a letter to a power that is no number is positive, or the power is whole."""
    return sp.expand(sp.expand_log(sp.log(sp.factor(quotient, deep=True)), force=True))


def _logs(expression: Any) -> Any:
    # letters under a logarithm are positive; a product of two negative numbers is not taken apart
    return sp.simplify(sp.expand_log(expression, force=bool(expression.free_symbols)))


def _exponentials(expression: Any) -> Any:
    return sp.powsimp(sp.expand(sp.together(expression.rewrite(sp.exp)).as_numer_denom()[0]))


# Is an algebraic number zero? No where an interval excludes zero; yes where it lies below the separation bound.
# A number that is not zero cannot be smaller than a bound that follows from how it is written (C. Burnikel, S. Funke,
# K. Mehlhorn, S. Schirra, S. Schmitt, "A separation bound for real algebraic expressions", ESA 2001): E is U / L with
# algebraic integers whose conjugates are all at most u and l in size; the degree of U is at most D, the product of the
# indices of all roots; so |E| >= 1 / (u^(D-1) l). Sines, cosines and powers of e at rational angles are made of roots
# of unity, whose conjugates are roots of unity. No number of digits is ever taken for a proof.


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
            TooWide: more digits may decide it.
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
            # a root as it is read everywhere: the principal one, or the real one where an odd root sign
            # stands over a negative number
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
            found = Enclosed(root, top, bottom)
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
