"""Numbers with something attached: units, percent signs, degrees, clocks, ratios, bases, infinity.

How this works: what is attached is taken off both sides and compared by its own rule (two units must agree, a missing
one always does), then the numbers are compared by `same_scalar`, converted where the options ask for it.
"""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths.comparing.scalars import ComparisonTrial, same_scalar, value_of
from grpo_verifiers.maths.comparing.values import NoValue, Undefined, approximate
from grpo_verifiers.maths.reading.tree import SCALARS, Node, contains, mapped, mul, number, symbols
from grpo_verifiers.maths.reading.units import conversion, units_agree


def same_values(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Two scalars, percent signs and degrees inside them included."""
    if {gold, answer} & {("inf",), ("neg", ("inf",))}:
        return gold == answer
    if "deg" in (gold[0], answer[0]):
        gold, answer = (node[1] if node[0] == "deg" else node for node in (gold, answer))
    if contains(answer, {"pct", "unit"}) or contains(gold, {"pct", "unit"}):
        gold, answer = _inline(gold), _inline(answer)
    if same_scalar(gold, answer, trial):
        return True
    # a bare `log` is natural or decimal: either will do, but the second only without a proof, which the first
    # reading would get
    if trial.bare_log and not trial.log10:
        trial.log10 = True
        found = same_scalar(gold, answer, trial)
        trial.log10 = False
        if found and not trial.pending:
            return True
    return False


def _inline(node: Node) -> Node:
    if node[0] == "pct":
        return ("/", node[1], number(100))
    if node[0] == "unit":
        inner: Node = _inline(node[1])
        return inner
    return node if node[0] in ("n", "s", "c") else mapped(node, _inline)


def same_measures(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """At least one side carries a unit or a percent sign."""
    unit_g, unit_a = "", ""
    if gold[0] == "unit":
        unit_g, gold = gold[2], gold[1]
    if answer[0] == "unit":
        unit_a, answer = answer[2], answer[1]
    if gold[0] == "pct" or answer[0] == "pct":
        if trial.options.units != "ignore" and (unit_g if answer[0] == "pct" else unit_a):
            return False
        return _percentages(gold, answer, trial)
    if unit_g != unit_a and (unit_g.endswith("+") or unit_a.endswith("+")):
        factor = conversion(unit_a.rstrip("+"), unit_g.rstrip("+"))
        return factor is not None and trial.same(gold, mul(number(factor), answer))
    if trial.options.units != "ignore" and not units_agree(unit_g, unit_a):
        if trial.options.units == "convert":
            factor = conversion(unit_a, unit_g)
            return factor is not None and trial.same(gold, mul(number(factor), answer))
        if {unit_g, unit_a} == {"pm", ""} or "clock" in (gold[0], answer[0]):
            return same_ratios(("unit", gold, unit_g), ("unit", answer, unit_a), trial)
        return False
    if "clock" in (gold[0], answer[0]):
        return same_ratios(("unit", gold, unit_g), ("unit", answer, unit_a), trial)
    if gold[0] in ("unit", "pct") or answer[0] in ("unit", "pct"):
        return trial.same(gold, answer)
    if trial.same(gold, answer):
        return True
    if unit_g != unit_a and "degree" in (unit_g, unit_a) and "" in (unit_g, unit_a):
        # a gold in radians has a pi or an arcus in it
        if unit_a == "degree" and contains(gold, {"c", "f"}):
            return gold[0] in SCALARS and answer[0] in SCALARS and same_scalar(gold, ("deg", answer), trial)
        if unit_g == "degree" and contains(answer, {"c", "f"}):
            return gold[0] in SCALARS and answer[0] in SCALARS and same_scalar(("deg", gold), answer, trial)
    return False


def _percentages(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """A percentage against a number: its value, or the number before the sign (see the option)."""
    if gold[0] == answer[0] == "pct":
        return trial.same(gold[1], answer[1])
    mode = trial.options.percent
    has_gold_sign = gold[0] == "pct"
    inside, bare = (gold[1], answer) if has_gold_sign else (answer[1], gold)
    if bare[0] not in (*SCALARS, "unit") or inside[0] not in SCALARS:
        return False
    if mode != "sign":
        value = ("/", inside, number(100))
        if trial.same(value, bare) if has_gold_sign else trial.same(bare, value):
            return True
        if has_gold_sign and bare[0] != "unit" and trial.same(inside, mul(number(100), bare)):
            return True
    if mode == "value":
        return False
    if not (trial.same(inside, bare) if has_gold_sign else trial.same(bare, inside)):
        return False
    # `0.5 %` without its sign would be a half: only from 1 on is the sign what was forgotten
    return mode == "sign" or _at_least_one(inside)


def _at_least_one(node: Node) -> bool:
    try:
        return abs(approximate(node, {}).value) >= 1
    except (NoValue, KeyError):
        return False


def same_ratios(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """At least one side is a ratio or a time of day."""
    half_g = half_a = ""
    if gold[0] == "unit":
        half_g, gold = gold[2], gold[1]
    if answer[0] == "unit":
        half_a, answer = answer[2], answer[1]
    halves = [next((h for h in ("am", "pm") if h in half.split()), "") for half in (half_g, half_a)]
    half_g, half_a = halves
    if gold[0] == "clock" and answer[0] == "clock":
        first, second = list(gold[1]), list(answer[1])
        if half_g in ("am", "pm") and half_a in ("am", "pm") and half_g != half_a:
            return False
        if first == second:
            return True
        if half_g == "pm" and not half_a:
            # the other side counts to 24
            first[0] = first[0] % 12 + 12
        elif half_a == "pm" and not half_g:
            second[0] = second[0] % 12 + 12
        return first == second
    first_items, second_items = _ratio_items(gold), _ratio_items(answer, whole=gold[0] == "ratio")
    if gold[0] == "clock" or first_items is None or second_items is None or len(first_items) != len(second_items):
        return False
    # crosswise and not by division, so that a zero needs no case of its own
    pivot, other = first_items[0], second_items[0]
    for g, a in zip(first_items[1:], second_items[1:], strict=True):
        if not trial.same(mul(g, other), mul(a, pivot)):
            return False
    # 0 : 0 is no ratio, though crosswise it equals every one
    return any(symbols(x) or value_of(x) != 0 for x in second_items) and not all(
        _is_zero(x) for x in (other, *second_items[1:])
    )


def _is_zero(node: Node) -> bool:
    try:
        return value_of(node) == 0
    except Undefined:
        return True


def _ratio_items(node: Node, whole: bool = False) -> tuple[Node, ...] | None:
    if node[0] == "ratio":
        items: tuple[Node, ...] = node[1]
        return items
    if node[0] == "clock":
        return tuple(number(part) for part in node[1])
    if node[0] in SCALARS and (whole or not (node[0] == "n" and node[1].denominator == 1)):
        return (node, number(1))
    return None


def same_bases(gold: Node, answer: Node) -> bool:
    """At least one side is written in a base."""
    if gold[0] == "base":
        if answer[0] == "base":
            return gold[2] == answer[2] and _based(gold) == _based(answer)
        # a whole number may lack its base, a fraction is its value
        as_written = gold if "." in gold[1] else ("base", gold[1], 10)
        return (answer[0] == "n" or "." in gold[1]) and _has_value(answer, _based(as_written))
    return (answer[2] == 10 or "." in answer[1]) and _has_value(gold, _based(answer))


def _has_value(node: Node, value: Fraction | None) -> bool:
    try:
        return value is not None and node[0] in SCALARS and value_of(node) == value
    except Undefined:
        return False


def _based(node: Node) -> Fraction | None:
    """The value of digits in their base; None where one of them is none of it."""
    whole, _, part = node[1].partition(".")
    try:
        return Fraction(int(whole + part, node[2]), node[2] ** len(part))
    except ValueError:
        return None
