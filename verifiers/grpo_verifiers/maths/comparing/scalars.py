"""Are two scalars equal? Strings and rationals accept or reject, floats only reject, the finite field accepts or rejects.

How this works: `same_scalar` goes through these tiers in this order and stops at the first that decides. Roundings of a
decimal gold are accepted where floats reject. What no tier settles is appended to `ComparisonTrial.pending` and counts
as equal until the child has decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

from grpo_verifiers.maths.comparing import values
from grpo_verifiers.maths.comparing.finite_field import Field, NoImage, Pair, whole_names
from grpo_verifiers.maths.options import MathOptions
from grpo_verifiers.maths.reading.tokens import TooBig
from grpo_verifiers.maths.reading.tree import WHOLE_LETTERS, Node, anywhere, contains, rename, symbols, walk

MOST_SYMBOLS = 64
_RADICAL = frozenset(("root", "log"))


@dataclass(slots=True)
class ComparisonTrial:
    """One comparison of an answer with a gold: options, what is still to be proved, and why it was accepted."""

    options: MathOptions
    compare: Callable[[Node, Node, ComparisonTrial], bool]
    log10: bool = False
    bare_log: bool = False
    pending: list[tuple[Node, Node]] = field(default_factory=list)
    how: str = "equal:rational"

    def same(self, gold: Node, answer: Node) -> bool:
        """Compare parts of the two; what they leave open is kept only if they may be equal."""
        return self.compare(gold, answer, self)

    def note(self, how: str) -> None:
        """Record the costliest argument that was needed."""
        order = ("equal:string", "equal:rational", "equal:rounded", "equal:exact", "equal:symbolic")
        if order.index(how) > order.index(self.how):
            self.how = how


def value_of(node: Node) -> Fraction | None:
    """The values.rational value, if the tree has one within bounds.

    Raises:
        values.Undefined: it has no value at all.
    """
    if node[0] == "n":
        found: Fraction = node[1]
        return found
    try:
        return values.rational(node)
    except (values.NotRational, TooBig):
        return None


def same_scalar(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether two scalars are equal, or could be (see `ComparisonTrial.pending`)."""
    if gold == answer and gold[0] in ("n", "s", "c"):
        return True
    try:
        a, b = value_of(gold), value_of(answer)
    except values.Undefined:
        return False
    # both are exact: no later tier could know better
    if a is not None and b is not None:
        return a == b or _close(gold, a, answer, b, trial)
    names = symbols(gold) | symbols(answer)
    if len(names) > MOST_SYMBOLS:
        return False
    if not trial.bare_log and (contains(gold, {"log"}) or contains(answer, {"log"})):
        trial.bare_log = anywhere(gold, _is_bare_log) or anywhere(answer, _is_bare_log)
    # roots and logarithms on both sides are asked about positive letters only: sqrt(x^2) is x there
    positive = has_radical(gold) and has_radical(answer)
    whole = sorted(whole_names(gold) | whole_names(answer)) if not names.isdisjoint(WHOLE_LETTERS) else []
    verdict = _floats(gold, answer, sorted(names), positive, trial, whole)
    # apart as floats: equal only if one is the other's rounding
    if verdict is False:
        return not names and _rounds(gold, answer, trial)
    mark = len(trial.pending)
    if _field(gold, answer, verdict, positive, trial, whole) and len(trial.pending) == mark:
        return True
    # a rounding is proof enough: what the field left open is taken back
    if verdict and not names and _rounds(gold, answer, trial):
        del trial.pending[mark:]
        return True
    return len(trial.pending) > mark


def _is_arc(at: tuple[Any, ...]) -> bool:
    return len(at) == 3 and at[0] == "f" and at[1] in ("arcsin", "arccos")


def _is_bare_log(at: tuple[Any, ...]) -> bool:
    return len(at) == 3 and at[0] == "log" and at[1] is None


def _is_decimal(at: tuple[Any, ...]) -> bool:
    return len(at) == 3 and at[0] == "n" and at[2] is not None


def has_radical(node: Node) -> bool:
    """Whether a root, a logarithm or a fractional power occurs, for which variables are taken as positive."""
    return any(
        at[0] in _RADICAL or (at[0] == "^" and contains(at[2], {"/"}) and not symbols(at[2])) for at in walk(node)
    )


def _floats(
    gold: Node, answer: Node, names: list[str], positive: bool, trial: ComparisonTrial, whole: list[str]
) -> bool | None:
    """False: apart at some point. True: together at all points that have a value. None: no point has one."""
    seen = False
    small = bool(names) and (anywhere(gold, _is_arc) or anywhere(answer, _is_arc))
    # without letters all points are the same
    for turn, point in enumerate(values.sample_points(names, positive or small, small)[: 2 if names else 1]):
        point |= {name: float(i + turn + 2) for i, name in enumerate(whole)}
        try:
            a = values.approximate(gold, point, trial.log10)
        except values.NoValue:
            a = None
        try:
            b = values.approximate(answer, point, trial.log10)
        except values.NoValue:
            b = None
        if a is not None and b is not None:
            if values.differ(a, b):
                return False
            seen = True
    return True if seen else None


def _field(
    gold: Node, answer: Node, floats: bool | None, positive: bool, trial: ComparisonTrial, whole: list[str]
) -> bool:
    images = Field(trial.log10, positive)
    try:
        # (-1)^n has one image for an even and one for an odd n: all parities must agree, under both primes
        for turn, odd in product((0, 1), product((0, 1), repeat=min(len(whole), 4))):
            images = images if turn == 0 else Field(trial.log10, positive, turn)
            images.parities = dict(zip(whole, odd, strict=False))
            if images.image(gold) != images.image(answer):
                break
        else:
            trial.note("equal:exact")
            return True
    except (NoImage, TooBig, RecursionError):
        # no image, but floats that agree: the child decides
        return floats is True and _leave_open(gold, answer, trial)
    # known operations with different images are a disproof; where a function was drawn they prove nothing
    # roots of constants too large for floats, such as 2^2011 (sqrt(1 + 2^-2009) - 1), are left to the child's intervals
    if not images.opaque or (floats is None and (symbols(answer) or not (has_radical(gold) and has_radical(answer)))):
        return False
    return _leave_open(gold, answer, trial)


def _leave_open(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    # every proof takes time of a training step: an answer that asks for more is refused
    if len(trial.pending) >= 24:
        return False
    trial.pending.append((gold, answer))
    return True


def _significant(value: Fraction, places: int) -> int:
    return len(str(abs(value.numerator * 10**places // value.denominator)).lstrip("0"))


def _places(gold: Node) -> int | None:
    if gold[0] == "neg":
        gold = gold[1]
    return gold[2] if gold[0] == "n" else None


def _close(gold: Node, a: Fraction, answer: Node, b: Fraction, trial: ComparisonTrial) -> bool:
    """Rational values that values.differ: is one the rounding of the other, or inside the tolerance?"""
    tolerance = trial.options.tolerance
    if (
        tolerance
        and (anywhere(answer, _is_decimal) or anywhere(gold, _is_decimal))
        and abs(a - b) <= Fraction(tolerance) * abs(a)
    ):
        trial.note("equal:rounded")
        return True
    places = _places(gold)
    if (
        # the gold is taken for a rounding of an exact answer, never the answer for one of the gold; below three
        # digits a guess would hit
        not trial.options.round_gold
        or places is None
        or b.denominator == 1
        or anywhere(answer, _is_decimal)
        or _significant(a, places) < 3
    ):
        return False
    # within half a unit of the gold's last decimal
    if abs(a - b) * 2 * 10**places <= 1:
        trial.note("equal:rounded")
        return True
    return False


def _rounds(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """The same for values of which one or both are irrational."""
    places, decimal_answer = _places(gold), anywhere(answer, _is_decimal)
    tolerance = trial.options.tolerance
    try:
        a, b = values.approximate(gold, {}, trial.log10).value, values.approximate(answer, {}, trial.log10).value
    except values.NoValue:
        return False
    gap = abs(a - b)
    if tolerance and (places is not None or decimal_answer) and gap <= tolerance * abs(a):
        trial.note("equal:rounded")
        return True
    exact = value_of(gold)
    if (
        not trial.options.round_gold
        or places is None
        or exact is None
        or decimal_answer
        or _significant(exact, places) < 3
    ):
        return False
    # sixteen digits are those of a double, which need not be the nearest decimal
    step = 0.5 * 10.0**-places * (1 + 1e-9)
    if gap <= (max(step, 2 * math.ulp(abs(a))) if _significant(exact, places) > 14 else step):
        trial.note("equal:rounded")
        return True
    return False


def proportional(gold: Node, answer: Node, trial: ComparisonTrial, positive: bool = False) -> bool:
    """Whether one expression is a non-zero constant times the other (`positive`: a positive one)."""
    names = sorted(symbols(gold) | symbols(answer))
    if not names or len(names) > MOST_SYMBOLS:
        return False
    ratios = []
    for point in values.sample_points(names, False):
        try:
            a, b = values.approximate(gold, point, trial.log10), values.approximate(answer, point, trial.log10)
        except values.NoValue:
            continue
        # what cannot be distinguished from zero gives no ratio
        if abs(a.value) <= 64 * a.error or abs(b.value) <= 64 * b.error:
            return False
        ratios.append((a.value / b.value, a.error / abs(a.value) + b.error / abs(b.value)))
    for ratio, error in ratios:
        if abs(ratio - ratios[0][0]) > abs(ratio) * (64 * (error + ratios[0][1]) + 1e-12):
            return False
        if positive and (ratio.real <= 0 or abs(ratio.imag) > 1e-9 * abs(ratio)):
            return False
    for turn in (0, 1):
        images = Field(trial.log10, turn=turn)
        try:
            first = _cross(images, gold, answer)
            # the same quotient in other letters: one that depends on them changes, a constant stays
            other = {name: name + " again" for name in names}
            renamed = _cross(images, rename(gold, other), rename(answer, other))
        except (NoImage, TooBig, RecursionError):
            return False
        if first is None or first != renamed:
            break
    if first is None or renamed is None or first != renamed:
        if images.opaque and first is not None and ratios:
            constant = ratios[0][0].real
            # the child proves that two things are equal, so it is asked with the constant put in
            simple = Fraction(constant).limit_denominator(1000)
            if simple and abs(float(simple) - constant) < 1e-9 * abs(constant):
                return _leave_open(gold, ("*", ("n", simple, None), answer), trial)
        return False
    trial.note("equal:exact")
    return True


def _cross(images: Field, gold: Node, answer: Node) -> Pair | None:
    a, b = images.image(gold), images.image(answer)
    if a == (0, 0) or b == (0, 0):
        return None
    return images.times(a, images.inverse(b))
