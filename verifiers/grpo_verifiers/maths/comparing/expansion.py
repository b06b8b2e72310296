"""Answers written out: plus-minus as two, systems as lists, one-cell matrices as their cell."""

from __future__ import annotations

from itertools import product

from grpo_verifiers.maths.reading.tree import Node, choose_signs, contains, number

SIGNS = frozenset(("pm", "mp"))
SETLIKE = frozenset(("cup", "cap", "minus", "all", "builder"))
REGIONS = SETLIKE | {"set", "tuple"}


def expand(node: Node) -> Node:
    """Plus-minus written out, system of equations as a list, sums of one term flattened."""
    if node[0] == "+" and len(node) == 2:
        node = node[1]
    if node[0] == "list" and any(contains(item, SIGNS) for item in node[2]):
        items: list[Node] = []
        for item in node[2]:
            written = expand(item)
            items.extend(written[2] if written[0] == "list" else (written,))
        return ("list", node[1], tuple(items))
    if node[0] == "set" and any(contains(item, SIGNS) for item in node[1]):
        written = expand(("list", ",", node[1]))
        return ("set", written[2] if written[0] == "list" else (written,))
    if node[0] == "rel" and contains(node, SIGNS) and all(op == "=" for op, _ in node[2]):
        last = node[2][-1][1]
        if not contains(node[1], SIGNS):
            return ("rel", node[1], (*node[2][:-1], ("=", expand(last))))
    if (
        node[0] == "tuple"
        and sum(contains(item, SIGNS) for item in node[3]) > 1
        # a minus-plus ties the signs of its coordinates, as one plus-minus in them all does not
        and not contains(node, {"mp"})
    ):
        return ("list", "pm", _independent(node))
    if node[0] not in ("list", "set", "rel", "congruence") and contains(node, SIGNS):
        return ("list", "pm", (choose_signs(node, True), choose_signs(node, False)))
    if node[0] == "cases" and all(len(row) == 1 for row in node[1]):
        return ("list", ",", tuple(row[0] for row in node[1]))
    if (
        node[0] == "+"
        and len(node) == 3
        and node[2][0] == "neg"
        and node[1][0] in REGIONS
        and node[2][1][0] in REGIONS
    ):
        return ("minus", node[1], node[2][1])
    if node[0] == "matrix" and len(node[1]) == 1 and len(node[1][0]) == 1:
        return expand(node[1][0][0])
    if (
        node[0] == "*"
        and len(node) == 3
        and node[2][0] == "tuple"
        and node[1][0] == "s"
        and node[1][1].isupper()
    ):
        return expand(node[2])  # a named point, P(2, 3)
    if node[0] == "unit" and node[1][0] in ("tuple", "set", "list"):
        return expand(node[1])
    return node


def _independent(node: Node) -> tuple[Node, ...]:
    """`(\\pm a, \\pm b)` is four points: nothing ties the signs of two coordinates, as a minus-plus would."""
    choices = [
        [choose_signs(item, True), choose_signs(item, False)] if contains(item, SIGNS) else [item]
        for item in node[3]
    ]
    return tuple((*node[:3], items) for items in product(*choices[:6])) if len(choices) <= 6 else (node,)


def plain_value(node: Node) -> Node:
    """The number of a quantity or percentage, its unit dropped."""
    while node[0] == "unit":
        node = node[1]
    return ("/", node[1], number(100)) if node[0] == "pct" else node
