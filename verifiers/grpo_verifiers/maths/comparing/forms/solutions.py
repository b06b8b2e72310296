"""Solutions of several unknowns: `x = 1, y = 2 or x = 3, y = 4`, `(x, y) = (1, 2), (3, 4)` and `(1, 2), (3, 4)` are one."""

from __future__ import annotations

from typing import NamedTuple

from grpo_verifiers.maths.comparing.left_sides import coordinates
from grpo_verifiers.maths.comparing.lists import unordered
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial
from grpo_verifiers.maths.reading.tree import Node


class Solutions(NamedTuple):
    """Tuples of values; `names` in the order of the values, empty where the answer names none."""

    names: tuple[str, ...]
    points: tuple[Node, ...]


def same_solutions(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether both are the same two or more points. At least one side names its coordinates."""
    first, second = solutions_of(gold), solutions_of(answer)
    if first is None or second is None or not (first.names or second.names):
        return False
    if len(first.points) != len(second.points):
        return False
    if first.names and second.names and first.names != second.names:
        if set(first.names) != set(second.names):
            return False
        second = _ordered(second, first.names)
    return unordered(list(first.points), list(second.points), trial)


def _ordered(found: Solutions, names: tuple[str, ...]) -> Solutions:
    places = [found.names.index(name) for name in names]
    return Solutions(
        names, tuple(("tuple", "(", ")", tuple(point[3][i] for i in places)) for point in found.points)
    )


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
    return _named_values(items)


def _named_tuples(items: tuple[Node, ...]) -> Solutions | None:
    """`(x, y) = (1, 2), (3, 4)`: the name may be said once or each time."""
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


def _named_values(items: tuple[Node, ...]) -> Solutions | None:
    """`x = 1, y = 2, x = 3, y = 4`: a new point begins where a name comes again."""
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
    by_alphabet = coordinates({name: ("s", name) for name in groups[0]})
    order = [node[1] for node in by_alphabet]
    return Solutions(
        tuple(order), tuple(("tuple", "(", ")", tuple(group[name] for name in order)) for group in groups)
    )
