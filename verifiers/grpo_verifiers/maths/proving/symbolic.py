"""Proof of equality by computer algebra. Imported only in the child process; trees are built here, never parsed by sympy.

A pair arrives only after floats agreed at sample points, so the question is whether two expressions that look equal are.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from grpo_verifiers.maths.comparing.scalars import has_radical
from grpo_verifiers.maths.reading.tree import Node, size

MOST_NODES = 400
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
    """Whether the two are equal; None where sympy cannot tell."""
    if size(gold) + size(answer) > MOST_NODES:
        return None
    builder = Builder(has_radical(gold) and has_radical(answer), log10)
    first, second = builder.build(gold), builder.build(answer)
    difference = first - second
    if difference == 0:
        return True
    if not difference.free_symbols:
        return _constant_is_zero(difference)
    # None and not False: that sympy finds no proof is none of the contrary
    return any(_proves(step, difference) for step in _steps(difference)) or bool(difference.equals(0)) or None


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
    return [*steps, sp.simplify, _factored]


def _constant_is_zero(difference: Any) -> bool | None:
    """Reject by sixty digits first: sympy's own zero test would take fewer."""
    value = abs(sp.N(difference, 60))
    scale = max((abs(sp.N(term, 20)) for term in sp.Add.make_args(difference)), default=sp.Integer(0))
    if value.is_comparable and scale.is_comparable and value > scale * sp.Float("1e-40"):
        return False
    if difference.has(sp.atan, sp.asin, sp.acos) and _proves(_tangent, difference):
        return True
    steps = (sp.expand, sp.sqrtdenest, _radicals, sp.expand_complex, _logs, _minimal, sp.simplify)
    return any(_proves(step, difference) for step in steps) or bool(difference.equals(0)) or None


def _tangent(expression: object) -> Any:
    """An angle smaller than one in size is zero if its tangent is."""
    if abs(sp.N(expression, 30)) > sp.Float("1e-20"):
        return expression
    return sp.simplify(sp.expand_trig(sp.tan(expression)))


def _radicals(expression: object) -> Any:
    return sp.radsimp(sp.nsimplify(sp.expand(expression)))


def _minimal(expression: object) -> Any:
    x = sp.Symbol("x")
    # an algebraic number is zero where its minimal polynomial is x
    return sp.Integer(0) if sp.minimal_polynomial(expression, x) == x else sp.Integer(1)


def _logs(expression: object) -> Any:
    return sp.simplify(sp.expand_log(expression, force=True))


def _factored(expression: object) -> Any:
    return sp.simplify(sp.expand_log(sp.factor(expression, deep=True), force=True))


def _factorials(expression: object) -> Any:
    return sp.combsimp(sp.gammasimp(expression))


def _exponentials(expression: Any) -> Any:
    return sp.powsimp(sp.expand(sp.together(expression.rewrite(sp.exp)).as_numer_denom()[0]))
