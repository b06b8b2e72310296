"""Tuples, vectors, matrices and definitions by cases."""

from __future__ import annotations

from grpo_verifiers.maths.comparing.lists import in_order, unordered, written_out
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial
from grpo_verifiers.maths.reading.tree import Node, contains, mul


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
    # a tuple does not say whether it is a row or a column: it is turned to fit the other
    if "tuple" in (gold[0], answer[0]) and len(second) != len(first):
        first, second = (
            (first, tuple(zip(*second, strict=False)))
            if answer[0] == "tuple"
            else (tuple(zip(*first, strict=False)), second)
        )
    return len(first) == len(second) and all(
        in_order(g, a, trial) for g, a in zip(first, second, strict=True)
    )


def same_cases(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Definitions by cases, in any order of the cases."""
    left = list(answer[1])
    if len(left) != len(gold[1]):
        return False
    for row in gold[1]:
        for other in left:
            if len(row) == len(other) and all(trial.same(g, a) for g, a in zip(row, other, strict=True)):
                left.remove(other)
                break
        else:
            return False
    return True
