"""Proof of equality by computer algebra. Imported only in the child process; trees are built here, never parsed by sympy.

A pair arrives only after floats agreed at sample points, so the question is whether two expressions that look equal are.
Digits only tell expressions apart. That they are equal follows from a separation bound (`constants`), or from exact
rewriting; sympy's own tests for zero, which end at some number of digits, are not asked.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from grpo_verifiers.maths.comparing.scalars import has_radical
from grpo_verifiers.maths.proving.constants import NotAlgebraic, is_zero
from grpo_verifiers.maths.reading.tree import Node, size, symbols

MOST_NODES = 400
SURE_DIGITS = 15
MOST_DIGITS = 1_000
"""Digits up to which two numbers are told apart; fewer for functions of letters, and of factorials, which take long."""
_FUNCTIONS = {
    "sin": sp.sin, "cos": sp.cos, "tan": sp.tan, "cot": sp.cot, "sec": sp.sec, "csc": sp.csc, "sinh": sp.sinh, "cosh": sp.cosh,
    "tanh": sp.tanh, "coth": sp.coth, "arcsin": sp.asin, "arccos": sp.acos, "arctan": sp.atan, "arccot": sp.acot, "arcsec": sp.asec,
    "arccsc": sp.acsc, "abs": sp.Abs, "floor": sp.floor, "ceil": sp.ceiling, "max": sp.Max, "min": sp.Min,
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
        if kind == "neg":
            return -self.build(node[1])
        if kind == "+":
            return sp.Add(*(self.build(part) for part in node[1:]))
        if kind == "*":
            return sp.Mul(*(self.build(part) for part in node[1:]))
        if kind == "/":
            return self.build(node[1]) / self.build(node[2])
        if kind == "^":
            return sp.Pow(self.build(node[1]), self.build(node[2]))
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
        if kind == "!":
            return sp.factorial(self.build(node[1]))
        if kind == "!!":
            return sp.factorial2(self.build(node[1]))
        if kind == "binom":
            return sp.binomial(self.build(node[1]), self.build(node[2]))
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
    if size(gold) + size(answer) > MOST_NODES:
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
    """Where two expressions are told apart by many digits; `small`: inside (0, 1), where inverse sines are real."""
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
        steps.append(_factorials)
    if expression.has(
        sp.functions.elementary.trigonometric.TrigonometricFunction,
        sp.functions.elementary.hyperbolic.HyperbolicFunction,
    ):
        steps += [_exponentials, sp.trigsimp]
    if expression.has(sp.log):
        steps.append(_logs)
    if not expression.free_symbols:
        steps += [_tangent, sp.expand_complex]
    return [*steps, sp.simplify, _factored]


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


def _factored(expression: Any) -> Any:
    return _logs(sp.factor(expression, deep=True))


def _factorials(expression: object) -> Any:
    return sp.combsimp(sp.gammasimp(expression))


def _exponentials(expression: Any) -> Any:
    return sp.powsimp(sp.expand(sp.together(expression.rewrite(sp.exp)).as_numer_denom()[0]))
