"""Sets of real numbers as sorted pieces: intervals, unions, inequalities and `all reals` in one form."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from grpo_verifiers.maths.comparing.approximation import NoValue, approximate
from grpo_verifiers.maths.comparing.rationals import Undefined
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial, same_scalar, value_of
from grpo_verifiers.maths.reading.tree import SCALARS, ZERO, Node, number, replaced, symbols

INFINITY = float("inf")


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
    """`name`: the variable it was said of, if any."""

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
    """The set a node stands for.

    Raises:
        NotReal: it stands for none.
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
        return _relation(node)
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
        # `x < 1, x > 2` has no common part: the comma stands for "or"
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


def _relation(node: Node) -> RealSet:
    first, links = node[1], node[2]
    found: RealSet | None = None
    left = first
    for op, right in links:
        if op == "in":
            if left[0] != "s":
                raise NotReal("membership of an expression")
            here = RealSet(real_set(right).pieces, left[1])
        else:
            here = _inequality(left, op, right)
        found = here if found is None else _joined(found, here, intersection(found.pieces, here.pieces))
        left = right
    if found is None:
        raise NotReal("no relation")
    return found


_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!=", "=": "="}


def _inequality(left: Node, op: str, right: Node) -> RealSet:
    if op not in _FLIPPED:
        raise NotReal(op)
    # the letter to the left: `3 < x` is `x > 3`
    if right[0] == "s" and left[0] != "s":
        left, op, right = right, _FLIPPED[op], left
    if right[0] == "f" and right[1] == "abs" and not symbols(left):
        left, op, right = right, _FLIPPED[op], left
    if left[0] == "f" and left[1] == "abs" and not symbols(right) and op != "=":
        return _within(left[2][0], op, right)
    names = symbols(left) | symbols(right)
    if len(names) != 1 or left[0] in ("tuple", "set", "list") or right[0] in ("tuple", "set", "list"):
        raise NotReal("not one variable")
    (name,) = names
    if left[0] != "s" or symbols(right):
        op, right = _solve_linear(left, op, right, name)
    if op == "!=":
        return RealSet(complement(point(right)), name)
    if op == "=":
        return RealSet(point(right), name)
    end = _end(right, op in ("<=", ">="))
    if end.node is None:
        return RealSet(ALL, name)
    return RealSet((RealPiece(LEFT, end),) if op in ("<", "<=") else (RealPiece(end, RIGHT),), name)


def _within(inner: Node, op: str, bound: Node) -> RealSet:
    """`|x - 1| < 2` and its like, for a positive bound."""
    if _end(bound, False).place <= 0:
        raise NotReal("a bound that is not positive")
    upper, lower = _inequality(inner, op, bound), _inequality(inner, _FLIPPED[op], ("neg", bound))
    join = intersection if op in ("<", "<=", "!=") else union
    return RealSet(join(upper.pieces, lower.pieces), upper.name)


def _solve_linear(left: Node, op: str, right: Node, name: str) -> tuple[str, Node]:
    """`2x > 6` as `x > 3`, if both sides are linear with rational coefficients."""
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
    return (op if slope > 0 else _FLIPPED[op]), number(-values[0] / slope)


def same_sets(gold: RealSet, answer: RealSet, trial: ComparisonTrial) -> bool:
    """Equal pieces, and no contradiction about the variable."""
    if gold.name and answer.name and gold.name != answer.name:
        return False
    if len(gold.pieces) != len(answer.pieces):
        return False
    for a, b in zip(gold.pieces, answer.pieces, strict=True):
        for x, y in zip(a, b, strict=True):
            if (x.node is None) != (y.node is None):
                return False
            if x.node is None:
                if x.place != y.place:
                    return False
            elif x.closed != y.closed or y.node is None or not same_scalar(x.node, y.node, trial):
                return False
    return True
