"""Vectors written with unit vectors: `2i - 5k` is (2, 0, -5)."""

from __future__ import annotations

from grpo_verifiers.maths.reading.tree import ZERO, Node, add, children, mul, number

_BOLD = {("s", "basis_i"): 0, ("s", "basis_j"): 1, ("s", "basis_k"): 2}
_PLAIN = {("c", "i"): 0, ("s", "j"): 1, ("s", "k"): 2}


def as_vector(node: Node, dimension: int) -> Node | None:
    """The tuple of a sum of multiples of unit vectors, or None. Plain letters count only if two of them occur."""
    if node[0] not in ("+", "*", "neg", "s", "/"):
        return None
    for basis, least in ((_BOLD, 1), (_PLAIN, 2)):
        if sum(_occurs(node, unit) for unit in basis) >= least:
            parts: list[list[Node]] = [[], [], []]
            if _collect(node, number(1), basis, parts):
                found = tuple(add(part) if part else ZERO for part in parts)
                # in the plane the third component is left out, not 0 by chance
                if dimension == 2 and found[2] == ZERO:
                    found = found[:2]
                return ("tuple", "(", ")", found) if len(found) == dimension else None
    return None


def _occurs(node: Node, unit: Node) -> bool:
    stack = [node]
    while stack:
        at = stack.pop()
        if at == unit:
            return True
        if at[0] not in ("n", "s", "c"):
            stack.extend(children(at))
    return False


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
        vectors = [part for part in node[1:] if any(_occurs(part, unit) for unit in basis)]
        # two unit vectors in a product are a scalar product, or a complex number
        if len(vectors) != 1:
            return False
        for part in node[1:]:
            factor = factor if part is vectors[0] else mul(factor, part)
        return _collect(vectors[0], factor, basis, parts)
    return False
