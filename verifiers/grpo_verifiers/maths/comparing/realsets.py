"""Sets of real numbers as sorted pieces: intervals, unions, inequalities and `all reals` in one form.

How this works: `real_set` turns a tree into disjoint pieces with ordered ends, by union, complement and intersection;
linear inequalities are solved on the way. `same_regions` compares two such sets piece by piece, and what is no set of
reals part by part. `written_out_set` lists the members of a set builder that has finitely many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeVar

from grpo_verifiers.maths.comparing.scalars import ComparisonTrial, proportional, same_scalar, value_of
from grpo_verifiers.maths.comparing.values import NoValue, Undefined, approximate
from grpo_verifiers.maths.reading.tree import SCALARS, WHOLE, ZERO, Node, number, rename, replaced, symbols

INFINITY = float("inf")
N = TypeVar("N")
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!=", "=": "="}
MOST_MEMBERS = 200
_NEAR = 1e-9
_WHOLE_SETS = {"Z": -math.inf, "N": 0, "Z+": 1, "N+": 1, "N*": 1}
"""Sets of whole numbers with their least member; whether 0 is in N is not agreed on."""


class End(NamedTuple):
    """An end of a piece; `place` orders ends, exactly where it is rational; `node` is None at infinity."""

    place: float | Fraction
    node: Node | None
    closed: bool


class RealPiece(NamedTuple):
    """An interval; a point is an interval closed at two equal ends."""

    low: End
    high: End


Pieces = tuple[RealPiece, ...]
LEFT, RIGHT = End(-INFINITY, None, False), End(INFINITY, None, False)
ALL: Pieces = (RealPiece(LEFT, RIGHT),)


class RealSet(NamedTuple):
    """`name`: the variable that was written with it, if any."""

    pieces: Pieces
    name: str | None = None


class NotReal(ValueError):
    """Not a set of real numbers with ends that can be ordered."""


def _end(node: Node, closed: bool) -> End:
    if node[0] == "+" and len(node) == 2:
        node = node[1]
    if node == ("inf",):
        return RIGHT
    if node == ("neg", ("inf",)):
        return LEFT
    if node[0] not in SCALARS or symbols(node):
        raise NotReal("an end with symbols")
    try:
        exact = value_of(node)
    except Undefined as err:
        raise NotReal("an end without a value") from err
    if exact is not None:
        return End(exact, node, closed)
    try:
        found = approximate(node, {})
    except NoValue as err:
        raise NotReal("an end without a value") from err
    if abs(found.value.imag) > 1e-9 * (1 + abs(found.value)):
        raise NotReal("a complex end")
    return End(found.value.real, node, closed)


def interval(low: Node, high: Node, low_closed: bool, high_closed: bool) -> Pieces:
    """The pieces of one interval; ends in the wrong order make no set."""
    a, b = _end(low, low_closed), _end(high, high_closed)
    if a.place > b.place or (a.place == b.place and not (a.closed and b.closed)):
        # `(5, 3)` is a point of the plane, no empty interval
        raise NotReal("ends in the wrong order")
    return (RealPiece(a, b),)


def point(node: Node) -> Pieces:
    """One number as a set."""
    end = _end(node, True)
    if end.node is None:
        raise NotReal("infinity is no number")
    return (RealPiece(end, end),)


def union(first: Pieces, second: Pieces) -> Pieces:
    """Sorted, with overlapping and touching pieces merged."""
    pieces = sorted((*first, *second), key=lambda p: (p.low.place, not p.low.closed))
    merged: list[RealPiece] = []
    for piece in pieces:
        if merged:
            last = merged[-1]
            # [0, 1) and [1, 2] are one piece, (0, 1) and (1, 2) leave a hole
            touches = piece.low.place == last.high.place and (piece.low.closed or last.high.closed)
            if piece.low.place < last.high.place or touches:
                if (piece.high.place, piece.high.closed) > (last.high.place, last.high.closed):
                    merged[-1] = RealPiece(last.low, piece.high)
                continue
        merged.append(piece)
    return tuple(merged)


def complement(pieces: Pieces) -> Pieces:
    """All other real numbers."""
    out: list[RealPiece] = []
    # each gap between two pieces, with the opposite brackets
    low = LEFT
    for piece in union(pieces, ()):
        if piece.low.node is not None:
            high = piece.low._replace(closed=not piece.low.closed)
            if low.place < high.place or (low.place == high.place and low.closed and high.closed):
                out.append(RealPiece(low, high))
        if piece.high.node is None:
            return tuple(out)
        low = piece.high._replace(closed=not piece.high.closed)
    out.append(RealPiece(low, RIGHT))
    return tuple(out)


def intersection(first: Pieces, second: Pieces) -> Pieces:
    """By De Morgan."""
    return complement(union(complement(first), complement(second)))


def real_set(node: Node) -> RealSet:
    """The set a node represents.

    Raises:
        NotReal: it represents none.
    """
    kind = node[0]
    if kind == "tuple" and len(node[3]) == 2 and node[1] in "([]" and node[2] in ")][":
        return RealSet(interval(node[3][0], node[3][1], node[1] == "[", node[2] == "]"))
    if kind == "set":
        pieces: Pieces = ()
        for item in node[1]:
            pieces = union(pieces, real_set(item).pieces if item[0] not in SCALARS else point(item))
        return RealSet(pieces)
    if kind == "all":
        if node[1] == "R":
            return RealSet(ALL)
        if node[1] in ("R+", "R+0", "R-"):
            zero = End(0.0, ZERO, node[1] == "R+0")
            return RealSet((RealPiece(LEFT, zero),) if node[1] == "R-" else (RealPiece(zero, RIGHT),))
        if node[1] == "R*":
            return RealSet(complement(point(ZERO)))
        raise NotReal("a set of other numbers")
    if kind in ("cup", "cap", "minus"):
        a, b = real_set(node[1]), real_set(node[2])
        if kind == "cup":
            return _joined(a, b, union(a.pieces, b.pieces))
        return _joined(a, b, intersection(a.pieces, b.pieces if kind == "cap" else complement(b.pieces)))
    if kind == "+" and len(node) == 3 and node[2][0] == "neg" and node[1][0] in ("all", "tuple"):
        return real_set(("minus", node[1], node[2][1]))
    if kind == "rel":
        left = node[1]
        whole: RealSet | None = None
        for op, right in node[2]:
            if op == "in":
                if left[0] != "s":
                    raise NotReal("membership of an expression")
                here = RealSet(real_set(right).pieces, left[1])
            else:
                here = _inequality(left, op, right)
            whole = here if whole is None else _joined(whole, here, intersection(whole.pieces, here.pieces))
            left = right
        if whole is None:
            raise NotReal("no relation")
        return whole
    if kind == "builder":
        found = real_set(node[3])
        if found.name not in (None, node[1]):
            raise NotReal("another variable")
        pieces = found.pieces
        if node[2] is not None:
            pieces = intersection(pieces, real_set(node[2]).pieces)
        return RealSet(pieces)
    if kind == "list" and node[2]:
        parts = [real_set(item) for item in node[2]]
        found = _folded(parts, union if node[1] == "or" else intersection)
        # `x < 1, x > 2` has no common part: the comma means "or"
        return _folded(parts, union) if node[1] == "," and not found.pieces else found
    raise NotReal(kind)


def _folded(parts: list[RealSet], join: Callable[[Pieces, Pieces], Pieces]) -> RealSet:
    found = parts[0]
    for part in parts[1:]:
        found = _joined(found, part, join(found.pieces, part.pieces))
    return found


def _joined(a: RealSet, b: RealSet, pieces: Pieces) -> RealSet:
    if a.name and b.name and a.name != b.name:
        raise NotReal("two variables")
    return RealSet(pieces, a.name or b.name)


def _inequality(left: Node, op: str, right: Node) -> RealSet:
    if op not in _FLIPPED:
        raise NotReal(op)
    # the letter to the left: `3 < x` is `x > 3`
    if right[0] == "s" and left[0] != "s":
        left, op, right = right, _FLIPPED[op], left
    if right[0] == "f" and right[1] == "abs" and not symbols(left):
        left, op, right = right, _FLIPPED[op], left
    if left[0] == "f" and left[1] == "abs" and not symbols(right) and op != "=":
        # `|x - 1| < 2` and its like, for a positive bound
        if _end(right, False).place <= 0:
            raise NotReal("a bound that is not positive")
        upper, lower = (_inequality(left[2][0], op, right), _inequality(left[2][0], _FLIPPED[op], ("neg", right)))
        join = intersection if op in ("<", "<=", "!=") else union
        return RealSet(join(upper.pieces, lower.pieces), upper.name)
    names = symbols(left) | symbols(right)
    if len(names) != 1 or left[0] in ("tuple", "set", "list") or right[0] in ("tuple", "set", "list"):
        raise NotReal("not one variable")
    (name,) = names
    if left[0] != "s" or symbols(right):
        # `2x > 6` as `x > 3`, if both sides are linear with rational coefficients
        difference: Node = ("+", left, ("neg", right))
        values: list[Fraction] = []
        # two points give the line, the others test that it is one
        for at in (0, 1, 2, 7):
            try:
                value = value_of(replaced(difference, ("s", name), number(at)))
            except Undefined:
                value = None
            if value is None:
                raise NotReal("not linear")
            values.append(value)
        slope = values[1] - values[0]
        if slope == 0 or values[2] != values[0] + 2 * slope or values[3] != values[0] + 7 * slope:
            raise NotReal("not linear")
        op, right = (op if slope > 0 else _FLIPPED[op]), number(-values[0] / slope)
    if op == "!=":
        return RealSet(complement(point(right)), name)
    if op == "=":
        return RealSet(point(right), name)
    end = _end(right, op in ("<=", ">="))
    if end.node is None:
        return RealSet(ALL, name)
    return RealSet((RealPiece(LEFT, end),) if op in ("<", "<=") else (RealPiece(end, RIGHT),), name)


def same_regions(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether two solution sets are equal, as pieces of the real line where they are that."""
    try:
        first, second = real_set(gold), real_set(answer)
    except NotReal:
        pass
    else:
        # equal pieces, and no contradiction about the variable
        if first.name and second.name and first.name != second.name:
            return False
        if len(first.pieces) != len(second.pieces):
            return False
        for a, b in zip(first.pieces, second.pieces, strict=True):
            for x, y in zip(a, b, strict=True):
                if x.node is None or y.node is None:
                    if x.node is not y.node or x.place != y.place:
                        return False
                elif x.closed != y.closed or not same_scalar(x.node, y.node, trial):
                    return False
        return True
    finite_gold, finite_answer = _finite_union(gold), _finite_union(answer)
    if finite_gold is not None and finite_answer is not None:
        return trial.same(("set", finite_gold), ("set", finite_answer))
    if gold[0] == answer[0] and gold[0] in ("cup", "cap", "minus"):
        if trial.same(gold[1], answer[1]) and trial.same(gold[2], answer[2]):
            return True
        return gold[0] != "minus" and trial.same(gold[1], answer[2]) and trial.same(gold[2], answer[1])
    if gold[0] == answer[0] == "builder":
        return gold[1:3] == answer[1:3] and trial.same(gold[3], answer[3])
    # `x in R` means no more than `R`
    if {gold[0], answer[0]} == {"all", "rel"}:
        relation, domain = (gold, answer) if gold[0] == "rel" else (answer, gold)
        return bool(relation[2] == (("in", domain),))
    if gold[0] == "list" and answer[0] == "list" and all(item[0] == "rel" for item in (*gold[2], *answer[2])):
        return gold[1] == answer[1] and all_matched(gold[2], answer[2], lambda g, a: same_inequality(g, a, trial))
    return bool(gold == answer) and gold[0] != "rel"


def all_matched(gold: Sequence[N], answer: Sequence[N], same: Callable[[N, N], bool]) -> bool:
    """Whether each has a partner of its own among the others, the first that fits."""
    left = list(answer)
    for g in gold:
        partner = next((a for a in left if same(g, a)), None)
        if partner is None:
            return False
        left.remove(partner)
    return not left


def _finite_union(node: Node) -> tuple[Node, ...] | None:
    if node[0] == "set":
        items: tuple[Node, ...] = node[1]
        return items
    if node[0] == "cup":
        a, b = _finite_union(node[1]), _finite_union(node[2])
        return None if a is None or b is None else (*a, *b)
    return None


def same_inequality(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether two inequalities are the same up to a positive factor."""
    if answer[0] != "rel" or len(gold[2]) != len(answer[2]):
        return False
    first, second = _oriented(gold), _oriented(answer)
    if len(first) > 1:
        return all(
            op == other and trial.same(a, c) and trial.same(b, d)
            for (a, op, b), (c, other, d) in zip(first, second, strict=True)
        )
    (a, op, b), (c, other, d) = first[0], second[0]
    if op != other:
        return False
    # a factor means nothing where a side is no number
    if any(side[0] not in SCALARS for side in (a, b, c, d)):
        return trial.same(a, c) and trial.same(b, d)
    return proportional(("+", a, ("neg", b)), ("+", c, ("neg", d)), trial, positive=op != "!=")


def _oriented(node: Node) -> list[tuple[Node, str, Node]]:
    """Links written with `<` or `<=`."""
    parts = [node[1], *(part for _, part in node[2])]
    ops = [op for op, _ in node[2]]
    if ops[0] in (">", ">="):
        parts.reverse()
        ops = [{">": "<", ">=": "<=", "<": ">", "<=": ">="}.get(op, op) for op in reversed(ops)]
    return [(parts[i], op, parts[i + 1]) for i, op in enumerate(ops)]


def written_out_set(node: Node) -> Node:
    """The set with its members, or the node itself where they are not finitely many, or not certain."""
    if node[0] != "builder":
        return node
    value: Node = node[2] if not node[1] else ("s", node[1])
    names = symbols(value)
    if len(names) != 1 or value[0] not in (*SCALARS, "tuple"):
        return node
    (name,) = names
    said = node[3]
    conditions = list(said[2]) if said[0] == "list" and said[1] in (",", "and") else [said]
    if node[1] and node[2] is not None:
        conditions.append(("rel", ("s", name), (("in", node[2]),)))
    members = _listed(name, conditions) or _bounded(name, conditions)
    if members is None:
        return node
    return ("set", tuple(replaced(value, ("s", name), member) for member in members))


def _listed(name: str, conditions: list[Node]) -> list[Node] | None:
    """`n = 1, 2, 3` and `n in {1, 2, 3}`."""
    first, rest = conditions[0], conditions[1:]
    if first[0] != "rel" or first[1] != ("s", name) or len(first[2]) != 1:
        return None
    sign, value = first[2][0]
    if sign == "in" and value[0] == "set" and not rest:
        rest = list(value[1])
    elif sign == "=" and rest:
        rest = [value, *rest]
    else:
        return None
    return rest if all(item[0] in SCALARS and not symbols(item) for item in rest) else None


def _bounded(name: str, conditions: list[Node]) -> list[Node] | None:
    """The whole numbers between bounds."""
    least: float | None = None
    bounds: list[Node] = []
    for condition in conditions:
        if condition[0] != "rel":
            return None
        if WHOLE in symbols(condition):
            condition, least = rename(condition, {WHOLE: name}), least or -math.inf
        domain = condition[2][0][1] if condition[1] == ("s", name) and condition[2][0][0] == "in" else None
        if domain is not None and domain[0] == "all" and len(condition[2]) == 1:
            least = _WHOLE_SETS.get(domain[1])
            if least is None:
                return None
        else:
            bounds.append(condition)
    if least is None or not bounds:
        return None
    try:
        found = real_set(("list", "and", tuple(bounds)) if len(bounds) > 1 else bounds[0])
    except NotReal:
        return None
    if found.name != name or len(found.pieces) != 1:
        return None
    low, high = found.pieces[0]
    # without an end on both sides there are infinitely many
    if high.place == math.inf or max(low.place, least) == -math.inf:
        return None
    # an irrational end this near to a whole number may be that number
    if any(
        isinstance(end.place, float) and abs(end.place - round(end.place)) <= _NEAR for end in (low, high) if end.node
    ):
        return None
    start = max(low.place, least)
    # every member is compared: `1 <= n <= 10^9` must not be written out
    if high.place - start > MOST_MEMBERS:
        return None
    members = [
        n
        for n in range(math.floor(start), math.ceil(high.place) + 1)
        if n >= least
        and (n > low.place or (low.closed and n == low.place))
        and (n < high.place or (high.closed and n == high.place))
    ]
    # whether 0 is one of the natural numbers is not agreed on, so this set is not known for certain
    if not members or members[0] == least == 0:
        return None
    return [number(n) for n in members]
