"""Set builders with finitely many members, written out: `{n^2 : n = 1, 2, 3}`, `{x in Z : 1 <= x <= 3}`."""

from __future__ import annotations

import math

from grpo_verifiers.maths.comparing.realsets import End, NotReal, real_set
from grpo_verifiers.maths.reading.tree import SCALARS, WHOLE, Node, number, rename, replaced, symbols

MOST_MEMBERS = 200
_NEAR = 1e-9
_WHOLE_SETS = {"Z": -math.inf, "N": 0, "Z+": 1, "N+": 1, "N*": 1}
"""Sets of whole numbers with their least member; whether 0 is in N is not agreed on."""


def written_out_set(node: Node) -> Node:
    """The set with its members, or the node itself where they are not finitely many, or not said for certain."""
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
        isinstance(end.place, float) and abs(end.place - round(end.place)) <= _NEAR
        for end in (low, high)
        if end.node
    ):
        return None
    start = max(low.place, least)
    # every member is compared: `1 <= n <= 10^9` must not be written out
    if high.place - start > MOST_MEMBERS:
        return None
    members = [
        n
        for n in range(math.floor(start), math.ceil(high.place) + 1)
        if n >= least and _is_above(n, low) and _is_below(n, high)
    ]
    # whether 0 is one of the natural numbers is not agreed on, so this set is not known for certain
    if not members or members[0] == least == 0:
        return None
    return [number(n) for n in members]


def _is_above(n: int, end: End) -> bool:
    return n > end.place or (end.closed and n == end.place)


def _is_below(n: int, end: End) -> bool:
    return n < end.place or (end.closed and n == end.place)
