"""Lists and finite sets, in order or in any."""

from __future__ import annotations

from fractions import Fraction

from grpo_verifiers.maths.comparing.approximation import NoValue, approximate
from grpo_verifiers.maths.comparing.expansion import SETLIKE, expand, plain_value
from grpo_verifiers.maths.comparing.left_sides import coordinates, named_values, without_left_sides
from grpo_verifiers.maths.comparing.rationals import Undefined
from grpo_verifiers.maths.comparing.regions import same_regions
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial, value_of
from grpo_verifiers.maths.reading.tree import SCALARS, Node, number

MOST_MATCHED = 12
"""Unordered lists up to this length are matched exhaustively, longer ones after sorting."""
ORDERED = frozenset(("<", ">", "<=", ">=", "!="))


def same_lists(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """At least one side is a list."""
    if gold[0] != "list":
        return _one_against_list(gold, answer, trial)
    if answer[0] == "list":
        return _list_against_list(gold, answer, trial)
    named = named_values(gold[2])
    if answer[0] == "tuple":
        if named is not None and len(named) > 1:
            return in_order(coordinates(named), answer[3], trial)
        # the two values of a plus-minus are no coordinates
        if trial.options.order == "free" and gold[1] != "pm":
            return unordered(list(gold[2]), list(answer[3]), trial)
        return False
    if answer[0] == "set":
        return same_finite_sets(("set", without_left_sides(gold[2])), answer, trial)
    if (gold[1] == "or" and all(item[0] == "rel" for item in gold[2])) or answer[0] in SETLIKE:
        return same_regions(gold, answer, trial)
    # `2 or 4/2` is one value said twice
    if gold[1] == "or" and answer[0] in (*SCALARS, "unit", "pct"):
        return all(trial.same(item, answer) for item in without_left_sides(gold[2]))
    return same_regions(gold, answer, trial) if gold[1] in ("and", "or") else False


def _one_against_list(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    items = answer[2]
    if gold[0] == "tuple":
        named = named_values(items)
        if named is not None and len(named) == len(items):
            return bool(len(named) == len(gold[3]) and in_order(gold[3], coordinates(named), trial))
        if answer[1] in (",", "and") and gold[1] in "(<" and not any(item[0] == "rel" for item in items):
            return in_order(gold[3], items, trial)
        return same_regions(gold, answer, trial)
    if gold[0] == "set":
        return same_finite_sets(gold, ("set", without_left_sides(items)), trial)
    if gold[0] in SETLIKE or gold[0] == "rel":
        return same_regions(gold, answer, trial)
    if answer[1] == "or" and gold[0] in (*SCALARS, "unit", "pct"):
        return all(trial.same(gold, item) for item in without_left_sides(items))
    return False


def _list_against_list(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    g, a = gold[2], answer[2]
    called, as_called = _values_of_functions(g), _values_of_functions(a)
    if called is not None and as_called is not None and set(called) == set(as_called):
        return all(trial.same(called[name], as_called[name]) for name in called)
    first, second = named_values(g), named_values(a)
    if first is not None and second is not None and len(first) > 1 and len(second) > 1:
        # one of them answers for another name
        if set(first) != set(second):
            return False
        return all(trial.same(first[k], second[k]) for k in first)
    if (
        first is not None
        and len(first) > 1
        # `x, y` have an order of their own; `x_1, x_2` are roots, which have none
        and len({k[:1] for k in first}) == len(first)
        and second is None
        and not any(i[0] == "rel" for i in a)
    ):
        return in_order(coordinates(first), a, trial)
    if (
        second is not None
        and len(second) > 1
        and len({k[:1] for k in second}) == len(second)
        and not any(i[0] == "rel" for i in g)
    ):
        return in_order(g, coordinates(second), trial) or in_order(g, list(second.values()), trial)
    if any(item[0] == "dots" for item in (*g, *a)):
        return in_order(written_out(g), written_out(a), trial)
    g, a = without_left_sides(g), without_left_sides(a)
    if _is_condition(g) or _is_condition(a):
        if same_regions(("list", gold[1], g), ("list", answer[1], a), trial):
            return True
        # conditions joined by `or` are one region and must not be matched as members of a list
        if gold[1] == "or" or answer[1] == "or":
            return False
    if trial.options.order == "kept" and gold[1] != "pm" and answer[1] != "pm":
        return in_order(g, a, trial)
    return unordered(list(g), list(a), trial)


def _values_of_functions(items: tuple[Node, ...]) -> dict[Node, Node] | None:
    """`P(A) = 0.3, P(B) = 0.7` by its left sides; None if an item is something else, or one comes twice."""
    found = {
        item[1]: item[2][0][1]
        for item in items
        if item[0] == "rel" and len(item[2]) == 1 and item[2][0][0] == "=" and item[1][0] == "f"
    }
    return found if len(found) == len(items) else None


def _is_condition(items: tuple[Node, ...]) -> bool:
    return all(item[0] == "rel" and {op for op, _ in item[2]} <= ORDERED | {"in"} for item in items)


def written_out(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """`2, ..., 7` as its six members, if the steps are whole and few; otherwise as it is."""
    places = [i for i, item in enumerate(items) if item[0] == "dots"]
    if len(places) != 1 or not 0 < places[0] < len(items) - 1:
        return items
    at = places[0]
    try:
        before = [value_of(item) for item in items[:at] if item[0] in SCALARS]
        end = value_of(items[at + 1]) if items[at + 1][0] in SCALARS else None
    except Undefined:
        return items
    if end is None or not before or None in before:
        return items
    last = before[-1]
    step = before[-1] - before[-2] if len(before) > 1 else Fraction(1)  # type: ignore[operator]
    if (
        last is None
        or step == 0
        # `1, 2, ..., 10^9` must not be built
        or (end - last) / step > 1000
        or (end - last) / step < 1
        or ((end - last) / step).denominator != 1
    ):
        return items
    middle = [number(last + step * (i + 1)) for i in range(int((end - last) / step) - 1)]
    return (*items[:at], *middle, *items[at + 1 :])


def in_order(
    gold: list[Node] | tuple[Node, ...], answer: list[Node] | tuple[Node, ...], trial: ComparisonTrial
) -> bool:
    """Item by item."""
    return len(gold) == len(answer) and all(
        same_member(g, a, trial) for g, a in zip(gold, answer, strict=True)
    )


def same_member(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Two members of a list, tuple or set: there the set of 1 is not 1, though an answer may be written as either."""
    return (gold[0] == "set") == (answer[0] == "set") and trial.same(gold, answer)


def unordered(gold: list[Node], answer: list[Node], trial: ComparisonTrial) -> bool:
    """A perfect matching. Pairs that need the child are tried after those that do not."""
    # pairs grow with the square
    if len(gold) != len(answer) or len(gold) > 400:
        return False
    # equal trees first: they cost nothing, and no proof is spent on them
    used = [False] * len(answer)
    open_pairs: list[Node] = []
    for g in gold:
        for j, a in enumerate(answer):
            if not used[j] and g == a:
                used[j] = True
                break
        else:
            open_pairs.append(g)
    gold, answer = open_pairs, [a for j, a in enumerate(answer) if not used[j]]
    if len(gold) > MOST_MATCHED:
        # too many to try all pairs: side by side in the order of their values
        gold = sorted(gold, key=_place)
        answer = sorted(answer, key=_place)
        return all(same_member(g, a, trial) for g, a in zip(gold, answer, strict=True))
    return _matched(gold, answer, trial)


def _place(node: Node) -> tuple[float, float, str]:
    try:
        value = approximate(plain_value(node), {}).value
        return (round(value.real, 9), round(value.imag, 9), "")
    except (NoValue, KeyError):
        return (0.0, 0.0, repr(node))


def _matched(gold: list[Node], answer: list[Node], trial: ComparisonTrial) -> bool:
    """Equality is transitive, so the first partner will do; an unproved one is given up for a proved one."""
    left = list(answer)
    for g in gold:
        best = None
        for j, a in enumerate(left):
            mark = len(trial.pending)
            if same_member(g, a, trial):
                proved = len(trial.pending) == mark
                if proved or best is None:
                    best = j
                if proved:
                    break
                # this pair may not be the one that is kept: its question is taken back, and asked again below
                del trial.pending[mark:]
        if best is None:
            return False
        # once more, so that what it leaves open is on record
        if not trial.same(g, left[best]):
            return False
        del left[best]
    return True


def _distinct(items: tuple[Node, ...], trial: ComparisonTrial) -> list[Node]:
    out: list[Node] = []
    # each would be compared with each; beyond this only equal trees are dropped
    if len(items) > 60:
        return list(dict.fromkeys(items))
    # what two members leave open between them is no question about gold and answer
    quiet = ComparisonTrial(trial.options, trial.compare, trial.log10)
    for item in items:
        if not any(item == other or (same_member(other, item, quiet) and not quiet.pending) for other in out):
            out.append(item)
        quiet.pending.clear()
    return out


def same_finite_sets(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """At least one side is a set with its members written out."""
    if gold[0] == "set" and answer[0] == "set":
        first, second = without_left_sides(gold[1]), without_left_sides(answer[1])
        if any(item[0] == "dots" for item in (*first, *second)):
            return in_order(written_out(first), written_out(second), trial)
        expanded_first, expanded_second = expand(("set", first))[1], expand(("set", second))[1]
        return unordered(_distinct(expanded_first, trial), _distinct(expanded_second, trial), trial)
    one, other = (gold, answer) if gold[0] == "set" else (answer, gold)
    if len(one[1]) == 1 and one[1][0][0] != "set" and other[0] in (*SCALARS, "tuple", "unit", "pct"):
        return trial.same(one[1][0], other) if gold[0] == "set" else trial.same(other, one[1][0])
    if other[0] == "rel" or other[0] in SETLIKE:
        return same_regions(gold, answer, trial)
    return False
