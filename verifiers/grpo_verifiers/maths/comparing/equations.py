"""Relations: assignments, chains, equations up to a factor. `x = 5` gives 5, `3 = 5` gives nothing.

How this works: `same_relations` gets two trees, one of them at least a relation. A chain is taken apart into the name
on its left and the values behind it. Two chains with one name agree by their values; two equations without a name
agree where the differences of their sides, freed of denominators, are proportional. Inequalities go to `realsets`.
"""

from __future__ import annotations

from grpo_verifiers.maths.comparing import expansion
from grpo_verifiers.maths.comparing.lists import in_order, unordered
from grpo_verifiers.maths.comparing.realsets import same_inequality, same_regions
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial, proportional
from grpo_verifiers.maths.comparing.values import NoValue, approximate
from grpo_verifiers.maths.reading.tree import SCALARS, Node, contains, mul, number, rename, symbols

_COORDINATES = frozenset(("x", "y", "z", "t"))


def same_relations(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """At least one side is a relation."""
    if gold[0] != "rel":
        return _gold_value(gold, answer, trial)
    ops = {op for op, _ in gold[2]}
    if ops <= {"=", "~", "to"}:
        return _gold_equation(gold, answer, trial)
    if answer[0] == "list" and answer[1] not in ("or", "and") and ops & {"="}:
        return False
    return same_regions(gold, answer, trial) or same_inequality(gold, answer, trial)


def _chain(node: Node) -> tuple[Node | None, list[Node], list[str]]:
    """Name (if the first side is one), values, and the signs between them."""
    parts = [node[1], *(part for _, part in node[2])]
    ops = [op for op, _ in node[2]]
    if expansion.is_name(parts[0]):
        return parts[0], parts[1:], ops[1:]
    # `5 = x`
    if len(parts) == 2 and parts[1][0] == "s" and ops[0] == "=":
        return parts[1], parts[:1], []
    return None, parts, ops


def _gold_value(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """The gold is a bare value, the answer a relation."""
    ops = {op for op, _ in answer[2]}
    if not ops <= {"=", "~", "to"}:
        if ops == {"in"} and len(answer[2]) == 1 and expansion.is_name(answer[1]):
            target = answer[2][0][1]
            return (target[0] != "set" or gold[0] not in SCALARS) and trial.same(gold, target)
        # `x > 3` does not mean 3
        if gold[0] in SCALARS or gold[0] in ("unit", "pct"):
            return False
        return same_regions(gold, answer, trial)
    name, values, signs = _chain(answer)
    if name is None and len(values) == 2 and _only_labels(values[0], gold):
        return trial.same(gold, values[1])
    if name is not None and name[0] == "tuple" and gold[0] == "list" and len(values) == 1 and values[0][0] == "tuple":
        return in_order(gold[2], values[0][3], trial)
    # the gold is the letter itself, which `x = 5` does not give
    if name is not None and gold == name and gold[0] == "s" and len(values) == 1 and values[0][0] != "s":
        return False
    # `3^{x+2} = 3^x \cdot 3^2 = 5 \cdot 9 = 45`: what is worked out in numbers
    while name is None and len(values) > 2 and not symbols(gold) and symbols(values[0]) and not symbols(values[-2]):
        values, signs = values[1:], signs[1:]
    if name is None and any(symbols(v) for v in values) and not all(trial.same(values[0], v) for v in values[1:]):
        return False
    return _any_part(gold, values, signs, trial)


def _only_labels(left: Node, gold: Node) -> bool:
    """Whether a formula on the left names what is asked: any before a matrix (`2A =`), a product before a number."""
    if gold[0] == "matrix":
        return bool(symbols(left)) and not contains(left, {"matrix"})
    # `|a-d| + |b-c| = 99`: an equation for the letters is one of coordinates
    letters = symbols(left)
    if len(letters) > 1 and gold[0] in SCALARS and not symbols(gold) and not letters <= _COORDINATES:
        return True
    if gold[0] == "f" or left[0] != "*":
        return False
    parts = expansion.factors(left)
    return gold[0] in SCALARS and all(part[0] == "s" for part in parts) and len(set(parts)) == len(parts)


def _any_part(gold: Node, values: list[Node], signs: list[str], trial: ComparisonTrial) -> bool:
    """The parts of a chain agree with each other (roughly across an approximation sign) and one is the gold."""
    for i, sign in enumerate(signs):
        if sign == "~":
            if not _roughly(values[i], values[i + 1]):
                return False
        elif not trial.same(values[i], values[i + 1]):
            # `h/p = h/(mv)`, `bh/2 = 3 * 4/2`: what other letters stand for was put in
            if all(symbols(v) - symbols(gold) for v in values[: i + 1]) and i + 1 < len(values):
                return _any_part(gold, values[i + 1 :], signs[i + 1 :], trial)
            return False
    return any(trial.same(gold, value) for value in values)


def _roughly(a: Node, b: Node) -> bool:
    """Whether one is the other rounded or cut to the digits shown."""
    try:
        x, y = approximate(expansion.plain_value(a), {}), approximate(expansion.plain_value(b), {})
    except (NoValue, KeyError):
        return False
    shown = [_shown_places(side) for side in (a, b)]
    # the coarser of the two sets the tolerance
    places = min((p for p in shown if p is not None), default=None)
    return places is not None and abs(x.value - y.value) < 10.0**-places


def _shown_places(node: Node) -> int | None:
    """Decimals of a number as written; None for an expression."""
    while node[0] in ("unit", "neg"):
        node = node[1]
    if node[0] == "pct":
        inner = _shown_places(node[1])
        return None if inner is None else inner + 2
    if node[0] != "n" or (node[2] is None and node[1].denominator != 1):
        return None
    return int(node[2] or 0)


def _gold_equation(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    name, values, signs = _chain(gold)
    if name is None and not symbols(gold):  # `\binom{12}{4} = 495`
        return any(trial.same(value, answer) for value in (values if "~" in signs else values[-1:]))
    if answer[0] != "rel":
        if name is not None and name[0] == "tuple" and answer[0] == "list" and len(values) == 1:
            named = expansion.named_values(answer[2])
            if named is not None and values[0][0] == "tuple":
                asked = [part[1] for part in name[3]]
                return set(named) == set(asked) and in_order(values[0][3], [named[k] for k in asked], trial)
        if name is None:
            return "~" in signs and any(trial.same(v, answer) for v in values)
        return any(trial.same(v, answer) for v in values)
    if not {op for op, _ in answer[2]} <= {"=", "~", "to"}:
        return name is not None and any(trial.same(v, answer) for v in values)
    other, parts, others = _chain(answer)
    if len(gold[2]) > 1 and any(map(symbols, values)) and not all(trial.same(values[0], v) for v in values[1:]):
        # `x = y = z`: a chain of things that are not equal by themselves is a system; all of them must come
        first = [gold[1], *(part for _, part in gold[2])]
        second = [answer[1], *(part for _, part in answer[2])]
        return {op for op, _ in (*gold[2], *answer[2])} == {"="} and unordered(first, second, trial)
    name, other = expansion.as_quotient(name), expansion.as_quotient(other)
    if name is None and "~" in signs:
        return any(trial.same(v, answer) for v in values)
    if name is not None and other is not None:
        # `f(x) = x^2` is `f(t) = t^2`: the argument is renamed, unless its new letter is taken
        if expansion.same_function(name, other) and not any(name[2][0][1] in symbols(part) for part in parts):
            parts = [rename(part, {other[2][0][1]: name[2][0][1]}) for part in parts]
            other = name
        # likewise the index of a sequence
        letters = expansion.same_sequence(name, other)
        if letters is not None and not any(letters[0] in symbols(part) for part in parts):
            parts = [rename(part, {letters[1]: letters[0]}) for part in parts]
            other = name
        if expansion.is_graph(name, other) and not any(
            (symbols(name) | symbols(other)) & symbols(part) & {"y", name[1]} for part in (*values, *parts)
        ):
            other = name
        if name == other or expansion.names_may_agree(name, other):
            return any(_any_part(v, parts, others, trial) for v in values)
        if len(values) == 1 and len(parts) == 1 and values[0][0] in SCALARS and parts[0][0] in SCALARS:
            return _same_equation(gold, answer, trial)
        return False
    return _same_equation(gold, answer, trial)


def _same_equation(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    if len(gold[2]) != 1 or len(answer[2]) != 1:
        return False
    left, right, a, b = gold[1], gold[2][0][1], answer[1], answer[2][0][1]
    if any(side[0] not in SCALARS for side in (left, right, a, b)):
        return (trial.same(left, a) and trial.same(right, b)) or (trial.same(left, b) and trial.same(right, a))
    # an equation in other letters is another one
    if symbols(gold) != symbols(answer):
        return False
    first, second = _numerator(left, right), _numerator(a, b)
    # once without denominators, which may be a factor that depends on the letters, and once as they stand
    return proportional(first, second, trial) or proportional(("+", left, ("neg", right)), ("+", a, ("neg", b)), trial)


def _numerator(left: Node, right: Node) -> Node:
    """left - right, both sides multiplied by their denominators."""
    (top, bottom), (other, under) = _over(left), _over(right)
    return ("+", ("*", top, under), ("neg", ("*", other, bottom)))


def _over(node: Node) -> tuple[Node, Node]:
    """Numerator and denominator of a sum, product or quotient."""
    one = number(1)
    kind = node[0]
    if kind == "/":
        (a, b), (c, d) = _over(node[1]), _over(node[2])
        return mul(a, d), mul(b, c)
    if kind == "neg":
        top, bottom = _over(node[1])
        return ("neg", top), bottom
    if kind == "*":
        top, bottom = one, one
        for factor in node[1:]:
            a, b = _over(factor)
            top, bottom = mul(top, a), mul(bottom, b)
        return top, bottom
    if kind == "+" and len(node) <= 12 and contains(node, {"/"}):
        top, bottom = _over(node[1])
        for term in node[2:]:
            a, b = _over(term)
            if b == one:
                top = ("+", top, mul(a, bottom))
            elif bottom == one:
                top, bottom = ("+", mul(top, b), a), b
            else:
                top, bottom = ("+", mul(top, b), mul(a, bottom)), mul(bottom, b)
        # a number below needs no clearing
        if not symbols(bottom):
            return node, one
        return top, bottom
    if kind == "^" and node[2][0] == "neg":
        return one, ("^", node[1], node[2][1])
    return node, one
