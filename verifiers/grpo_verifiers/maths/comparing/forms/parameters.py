"""Names that mean nothing outside an answer: parameters with their range, whole numbers, constants of integration, an index."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from grpo_verifiers.maths.reading.tree import WHOLE, Node, contains, rename, replaced, symbols

_INTEGERS = frozenset("kmnjl")
_CONSTANTS = frozenset(("C", "K", "c", "D", "A", "B", "C_1", "c_1", "C_2", "c_2", "C_3", "c_3"))
_NUMBERED = frozenset(("C_1", "C_2", "C_3", "c_1", "c_2", "c_3"))
_RANGES = frozenset((">", "<", ">=", "<=", "in"))


def renamed(gold: Node | None, answer: Node | None) -> Iterator[Node | None]:
    """The answer under each naming that could make it the gold, as written first."""
    if gold is None or answer is None:
        yield answer
        return
    answer = _bound_renamed(gold, answer)
    ours, theirs = symbols(gold), symbols(answer)
    wanted, found = ours - theirs, theirs - ours
    if WHOLE in wanted | found:
        yield rename(answer, _whole_names(wanted, found))
        return
    if len(wanted) == len(found) == 1 and _is_period(gold, *wanted, *found):
        answer = rename(answer, dict(zip(found, wanted, strict=True)))
        yield answer
        return
    yield answer
    if (
        wanted
        and wanted <= _CONSTANTS
        and found <= _CONSTANTS | {"k"}
        and len(wanted) == len(found) <= 3
        and _is_family(gold, wanted)
    ):
        # three constants at most, so six namings
        for order in permutations(sorted(wanted)):
            yield rename(answer, dict(zip(sorted(found), order, strict=True)))
    elif not wanted and not found and len(ours & _NUMBERED) in (2, 3):
        names = sorted(ours & _NUMBERED)
        for order in permutations(names):
            if list(order) != names:
                yield rename(answer, dict(zip(names, order, strict=True)))


def _whole_names(wanted: set[str], found: set[str]) -> dict[str, str]:
    """The new name of the parameter of an answer where only one side says that it is any whole number."""
    letters = sorted((found if WHOLE in wanted else wanted) & _INTEGERS)
    if len(letters) != 1:
        return {}
    return {letters[0]: WHOLE} if WHOLE in wanted else {WHOLE: letters[0]}


def _is_period(gold: Node, wanted: str, found: str) -> bool:
    """The whole number in `k pi` or `3k + 1`."""
    if wanted not in _INTEGERS or found not in _INTEGERS:
        return False
    return (contains(gold, {"c"}) and contains(gold, {"+", "*"})) or _is_progression(gold, wanted)


def _is_progression(gold: Node, parameter: str) -> bool:
    """`n = 3k + 1`: a whole number by a parameter of its own, with no other letter."""
    if gold[0] != "rel" or gold[1] not in (("s", "n"), ("s", "N"), ("s", "x")) or len(gold[2]) != 1:
        return False
    value = gold[2][0][1]
    return gold[2][0][0] == "=" and value[0] == "+" and symbols(value) == {parameter}


def _is_family(gold: Node, constants: set[str]) -> bool:
    """Whether the names can be constants of integration: beside other symbols in a sum, or before an exponential."""
    others = symbols(gold) - constants
    if not others:
        return False
    if (
        len(constants) == 1
        and constants <= _NUMBERED | {"C", "K"}
        and gold[0] == "rel"
        and others <= {"x", "y", "t"}
    ):
        return True
    if len(constants) == 1 and not constants <= {"A", "B"}:
        return contains(gold, {"+"}) or _has_exponential(gold)
    return contains(gold, {"+"}) and (gold[0] == "rel" or constants <= _NUMBERED)


def _has_exponential(node: Node) -> bool:
    stack: list[object] = [node]
    while stack:
        at = stack.pop()
        if isinstance(at, tuple):
            if len(at) == 3 and at[0] == "^" and at[1] == ("c", "e") and symbols(at[2]):
                return True
            stack.extend(at)
    return False


def _bound(node: Node) -> str:
    """The parameter of `s = 3j + 2, j >= 0`: a letter that only has a range and occurs in what comes before."""
    if node[0] != "list" or len(node[2]) < 2:
        return ""
    last = node[2][-1]
    if last[0] != "rel" or len(last[2]) != 1 or last[2][0][0] not in _RANGES:
        return ""
    if last[1] == ("c", "i"):
        return "i"
    if last[1][0] != "s" or symbols(last[2][0][1]):
        return ""
    name: str = last[1][1]
    before = node[2][:-1]
    heads = {item[1][1] for item in before if item[0] == "rel" and item[1][0] == "s"}
    # the value that is asked for may have a range as well (`x = 3, x > 0`), and is no parameter
    return name if name not in heads and all(name in symbols(item) for item in before) else ""


def _bound_renamed(gold: Node, answer: Node) -> Node:
    wanted, found = _bound(gold), _bound(answer)
    # a letter that the answer uses already would fall together with the new one
    if not wanted or not found or wanted == found or wanted in symbols(answer):
        return answer
    if found == "i":
        return replaced(answer, ("c", "i"), ("s", wanted))
    return answer if found in symbols(gold) else rename(answer, {found: wanted})
