"""Lists, sets, tuples, matrices and vectors: compared member by member, in order or in any.

How this works: each `same_...` gets two trees of its shape from `match.same`. In order, members are compared in pairs; in
any order, `unordered` matches them. Below follow tuples and matrices, vectors written with unit vectors, and solutions
of several unknowns, which become tuples of values first.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from grpo_verifiers.maths.comparing import expansion
from grpo_verifiers.maths.comparing.realsets import all_matched, same_regions
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial, value_of
from grpo_verifiers.maths.comparing.values import NoValue, Undefined, approximate
from grpo_verifiers.maths.reading.tree import SCALARS, ZERO, Node, add, anywhere, contains, mul, number, replaced, walk

MOST_MATCHED = 12
"""Unordered lists up to this length are matched exhaustively, longer ones after sorting."""
ORDERED = frozenset(("<", ">", "<=", ">=", "!="))
_BOLD = {("s", "basis_i"): 0, ("s", "basis_j"): 1, ("s", "basis_k"): 2}
_PLAIN = {("c", "i"): 0, ("s", "j"): 1, ("s", "k"): 2}


def same_lists(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """At least one side is a list."""
    if gold[0] != "list":
        return _one_against_list(gold, answer, trial)
    if answer[0] == "list":
        return _list_against_list(gold, answer, trial)
    named = expansion.named_values(gold[2])
    if answer[0] == "tuple":
        if named is not None and len(named) > 1:
            return in_order(expansion.coordinates(named), answer[3], trial)
        # the two values of a plus-minus are no expansion.coordinates
        if trial.options.order == "free" and gold[1] != "pm":
            return unordered(list(gold[2]), list(answer[3]), trial)
        return False
    if answer[0] == "set":
        return same_finite_sets(("set", expansion.without_left_sides(gold[2])), answer, trial)
    if (gold[1] == "or" and all(item[0] == "rel" for item in gold[2])) or answer[0] in expansion.SETLIKE:
        return same_regions(gold, answer, trial)
    # `2 or 4/2` is one value given twice
    if gold[1] == "or" and answer[0] in (*SCALARS, "unit", "pct"):
        return all(trial.same(item, answer) for item in expansion.without_left_sides(gold[2]))
    return same_regions(gold, answer, trial) if gold[1] in ("and", "or") else False


def _one_against_list(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    items = answer[2]
    if gold[0] == "tuple":
        named = expansion.named_values(items)
        if named is not None and len(named) == len(items):
            return bool(len(named) == len(gold[3]) and in_order(gold[3], expansion.coordinates(named), trial))
        if answer[1] in (",", "and") and gold[1] in "(<" and not any(item[0] == "rel" for item in items):
            return in_order(gold[3], items, trial)
        return same_regions(gold, answer, trial)
    if gold[0] == "set":
        return same_finite_sets(gold, ("set", expansion.without_left_sides(items)), trial)
    if gold[0] in expansion.SETLIKE or gold[0] == "rel":
        return same_regions(gold, answer, trial)
    if answer[1] == "or" and gold[0] in (*SCALARS, "unit", "pct"):
        return all(trial.same(gold, item) for item in expansion.without_left_sides(items))
    return False


def _list_against_list(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    g, a = gold[2], answer[2]
    called, as_called = _values_of_functions(g), _values_of_functions(a)
    if called is not None and as_called is not None and set(called) == set(as_called):
        return all(trial.same(called[name], as_called[name]) for name in called)
    first, second = expansion.named_values(g), expansion.named_values(a)
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
        return in_order(expansion.coordinates(first), a, trial)
    if (
        second is not None
        and len(second) > 1
        and len({k[:1] for k in second}) == len(second)
        and not any(i[0] == "rel" for i in g)
    ):
        return in_order(g, expansion.coordinates(second), trial) or in_order(g, list(second.values()), trial)
    values = _values_of_labels(a)
    if values is not None and second is None and not any(i[0] == "rel" for i in g):
        return in_order(g, values, trial)
    if any(item[0] == "dots" for item in (*g, *a)):
        return in_order(written_out(g), written_out(a), trial)
    g, a = expansion.without_left_sides(g), expansion.without_left_sides(a)
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


def _values_of_labels(items: tuple[Node, ...]) -> list[Node] | None:
    """Values of `x = 3, f(2) = 1`; None unless each item is a name or a value of a function, and no label comes twice."""
    found = {
        item[1]: item[2][0][1]
        for item in items
        if item[0] == "rel"
        and len(item[2]) == 1
        and item[2][0][0] == "="
        and (item[1][0] in ("s", "f") or (item[1][0] == "*" and item[1][1][0] == "s" and item[1][1][1] in "fghFGHPp"))
    }
    return list(found.values()) if len(found) == len(items) > 1 else None


def _is_condition(items: tuple[Node, ...]) -> bool:
    return all(item[0] == "rel" and {op for op, _ in item[2]} <= ORDERED | {"in"} for item in items)


def written_out(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """`2, ..., 7` as its six members, if the steps are whole and few; otherwise with the fewest terms before the dots."""
    places = [i for i, item in enumerate(items) if item[0] == "dots"]
    if len(places) != 1 or not 0 < places[0] < len(items) - 1:
        return items
    at = places[0]
    try:
        before = [value_of(item) for item in items[:at] if item[0] in SCALARS]
        end = value_of(items[at + 1]) if items[at + 1][0] in SCALARS else None
    except Undefined:
        return items
    if len(before) < at or None in before:
        return items
    if end is None:  # `1, 2, 3, ..., n`: terms that go on from those before them add nothing
        steps = {b - a for a, b in pairwise(before)}  # type: ignore[operator]
        return (*items[: 1 if steps == {1} else 2], *items[at:]) if len(steps) == 1 else items
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
    return len(gold) == len(answer) and all(same_member(g, a, trial) for g, a in zip(gold, answer, strict=True))


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
    # equality is transitive, so the first partner will do; an unproved one is given up for a proved one
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


def _place(node: Node) -> tuple[float, float, str]:
    try:
        value = approximate(expansion.plain_value(node), {}).value
        return (round(value.real, 9), round(value.imag, 9), "")
    except (NoValue, KeyError):
        return (0.0, 0.0, repr(node))


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
        first, second = expansion.without_left_sides(gold[1]), expansion.without_left_sides(answer[1])
        if any(item[0] == "dots" for item in (*first, *second)):
            return in_order(written_out(first), written_out(second), trial)
        expanded_first, expanded_second = expansion.expand(("set", first))[1], expansion.expand(("set", second))[1]
        return unordered(_distinct(expanded_first, trial), _distinct(expanded_second, trial), trial)
    one, other = (gold, answer) if gold[0] == "set" else (answer, gold)
    if len(one[1]) == 1 and one[1][0][0] != "set" and other[0] in (*SCALARS, "tuple", "unit", "pct"):
        return trial.same(one[1][0], other) if gold[0] == "set" else trial.same(other, one[1][0])
    if other[0] == "rel" or other[0] in expansion.SETLIKE:
        return same_regions(gold, answer, trial)
    return False


def _bracket(mark: str, is_left: bool) -> str:
    # angles dress a vector; `]0` and `0[` are open ends
    mark = {"<": "(", ">": ")"}.get(mark, mark)
    if is_left:
        return "(" if mark == "]" else mark
    return ")" if mark == "[" else mark


def same_tuples(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Two bracketed lists; a pair may be an interval, so its brackets count."""
    g, a = gold[3], answer[3]
    if len(g) != len(a):
        return False
    if len(g) == 2:
        for mark, other, is_left in ((gold[1], answer[1], True), (gold[2], answer[2], False)):
            end = g[0] if is_left else g[1]
            # at infinity an end is open, whatever its bracket
            infinite = end in (("inf",), ("neg", ("inf",)))
            if _bracket(mark, is_left) != _bracket(other, is_left) and not infinite:
                return False
    if any(item[0] == "dots" for item in (*g, *a)):
        return in_order(written_out(g), written_out(a), trial)
    if trial.options.order == "free":
        return unordered(list(g), list(a), trial)
    return in_order(g, a, trial)


def is_scaled_matrix(node: Node) -> bool:
    """A multiple of a matrix, not multiplied out."""
    return node[0] in ("*", "neg", "/") and contains(node, {"matrix"})


def _matrix(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    """Rows of a matrix, a scalar multiple of one, or nested brackets."""
    kind = node[0]
    if kind == "matrix":
        rows: tuple[tuple[Node, ...], ...] = node[1]
        return rows
    if kind == "neg":
        inner = _matrix(node[1])
        return None if inner is None else tuple(tuple(("neg", cell) for cell in row) for row in inner)
    if kind == "/":
        inner = _matrix(node[1])
        return None if inner is None else tuple(tuple(("/", cell, node[2]) for cell in row) for row in inner)
    if kind == "*" and len(node) == 3:
        left, right = _matrix(node[1]), _matrix(node[2])
        # a product of two matrices would have to be carried out
        if (left is None) == (right is None):
            return None
        scalar, inner = (node[1], right) if left is None else (node[2], left)
        return None if inner is None else tuple(tuple(mul(scalar, cell) for cell in row) for row in inner)
    if kind == "tuple" and (node[1], node[2]) in (("(", ")"), ("[", "]"), ("<", ">")):
        items: tuple[Node, ...] = node[3]
        if all(item[0] == "tuple" for item in items):
            return tuple(tuple(item[3]) for item in items)
        return tuple((item,) for item in items)
    return None


def same_matrices(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """At least one side is a matrix or a vector."""
    first, second = _matrix(gold), _matrix(answer)
    if first is None or second is None:
        return False
    # a tuple may be a row or a column: it is turned to fit the other
    if "tuple" in (gold[0], answer[0]) and len(second) != len(first):
        first, second = (
            (first, tuple(zip(*second, strict=False)))
            if answer[0] == "tuple"
            else (tuple(zip(*first, strict=False)), second)
        )
    return len(first) == len(second) and all(in_order(g, a, trial) for g, a in zip(first, second, strict=True))


def same_cases(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Definitions by cases, in any order of the cases."""
    return all_matched(
        gold[1],
        answer[1],
        lambda row, other: len(row) == len(other) and all(trial.same(g, a) for g, a in zip(row, other, strict=True)),
    )


def same_absolute(value: Node, cases: Node, trial: ComparisonTrial) -> bool:
    """`|u|` as u where u >= 0 and -u elsewhere, the border in either case."""
    bars = [at for at in walk(value) if at[0] == "f" and at[1] == "abs"]
    if len(set(bars)) != 1 or len(cases[1]) != 2 or any(len(row) != 2 for row in cases[1]):
        return False
    inner = bars[0][2][0]
    positive, negative = inner, ("neg", inner)
    for first, second in (cases[1], cases[1][::-1]):
        if trial.same(replaced(value, bars[0], positive), first[0]) and trial.same(
            replaced(value, bars[0], negative), second[0]
        ):
            ends = [
                op
                for row, ops in ((first, (">", ">=")), (second, ("<", "<=")))
                for op in ops
                if _is_where(row[1], inner, op, trial)
            ]
            if len(ends) == 2 and set(ends) != {">", "<"}:
                return True
    return False


def _is_where(condition: Node, inner: Node, op: str, trial: ComparisonTrial) -> bool:
    if condition == ("s", "otherwise"):
        return op in (">=", "<=")
    return condition[0] == "rel" and trial.same(("rel", inner, ((op, ZERO),)), condition)


def as_vector(node: Node, dimension: int) -> Node | None:
    """The tuple of a sum of multiples of unit vectors, or None. Plain letters count only if two of them occur."""
    if node[0] not in ("+", "*", "neg", "s", "/"):
        return None
    for basis, least in ((_BOLD, 1), (_PLAIN, 2)):
        if sum(anywhere(node, unit.__eq__) for unit in basis) >= least:
            parts: list[list[Node]] = [[], [], []]
            if _collect(node, number(1), basis, parts):
                found = tuple(add(part) if part else ZERO for part in parts)
                # in the plane the third component is left out, not 0 by chance
                if dimension == 2 and found[2] == ZERO:
                    found = found[:2]
                return ("tuple", "(", ")", found) if len(found) == dimension else None
    return None


def _collect(node: Node, factor: Node, basis: dict[Node, int], parts: list[list[Node]]) -> bool:
    """Add the components of `factor * node`; False if a term is no multiple of one unit vector."""
    if node in basis:
        parts[basis[node]].append(factor)
        return True
    if node[0] == "+":
        return all(_collect(term, factor, basis, parts) for term in node[1:])
    if node[0] == "neg":
        return _collect(node[1], ("neg", factor), basis, parts)
    if node[0] == "/":
        return _collect(node[1], ("/", factor, node[2]), basis, parts)
    if node[0] == "*":
        vectors = [part for part in node[1:] if any(anywhere(part, unit.__eq__) for unit in basis)]
        # two unit vectors in a product are a scalar product, or a complex number
        if len(vectors) != 1:
            return False
        for part in node[1:]:
            factor = factor if part is vectors[0] else mul(factor, part)
        return _collect(vectors[0], factor, basis, parts)
    return False


class Solutions(NamedTuple):
    """Tuples of values; `names` in the order of the values, empty where the answer names none."""

    names: tuple[str, ...]
    points: tuple[Node, ...]


def same_solutions(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether both are the same two or more points. At least one side names its expansion.coordinates."""
    first, second = solutions_of(gold), solutions_of(answer)
    if first is None or second is None or not (first.names or second.names):
        return False
    if len(first.points) != len(second.points):
        return False
    if first.names and second.names and first.names != second.names:
        if set(first.names) != set(second.names):
            return False
        places = [second.names.index(name) for name in first.names]
        second = Solutions(
            first.names, tuple(("tuple", "(", ")", tuple(point[3][i] for i in places)) for point in second.points)
        )
    return unordered(list(first.points), list(second.points), trial)


def solutions_of(node: Node) -> Solutions | None:
    """The points of a list or set, or None if it is something else."""
    if node[0] not in ("list", "set"):
        return None
    items = node[2] if node[0] == "list" else node[1]
    if len(items) < 2:
        return None
    if all(item[0] == "tuple" for item in items):
        return Solutions((), tuple(items))
    if items[0][0] == "rel" and items[0][1][0] == "tuple":
        return _named_tuples(items)
    # `x = 1, y = 2, x = 3, y = 4`: a new point begins where a name comes again
    groups: list[dict[str, Node]] = [{}]
    for item in items:
        if item[0] != "rel" or item[1][0] != "s" or len(item[2]) != 1 or item[2][0][0] != "=":
            return None
        if item[1][1] in groups[-1]:
            groups.append({})
        groups[-1][item[1][1]] = item[2][0][1]
    names = set(groups[0])
    if len(groups) < 2 or len(names) < 2 or any(set(group) != names for group in groups):
        return None
    by_alphabet = expansion.coordinates({name: ("s", name) for name in groups[0]})
    order = [node[1] for node in by_alphabet]
    return Solutions(tuple(order), tuple(("tuple", "(", ")", tuple(group[name] for name in order)) for group in groups))


def _named_tuples(items: tuple[Node, ...]) -> Solutions | None:
    """`(x, y) = (1, 2), (3, 4)`: the name may come once or each time."""
    name = items[0][1]
    if any(part[0] != "s" for part in name[3]):
        return None
    points: list[Node] = []
    for item in items:
        if item[0] == "rel":
            if item[1] != name or len(item[2]) != 1 or item[2][0][0] not in ("=", "in"):
                return None
            item = item[2][0][1]
        if item[0] != "tuple" or len(item[3]) != len(name[3]):
            return None
        points.append(item)
    return Solutions(tuple(part[1] for part in name[3]), tuple(points))
