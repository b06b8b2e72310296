"""Names that mean nothing outside an answer: parameters with their range, constants of integration, residue classes.

How this works: `renamed` yields the answer under each naming that could make it the gold, as written first.
`same_families` compares what a whole parameter runs through, and `same_residues` turns congruences, `n = 3k + 1` and `{3k + 1 : k in Z}` into sets of remainders modulo a common multiple.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations
from typing import NamedTuple

from grpo_verifiers.maths.comparing.expansion import without_left_sides
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial, value_of
from grpo_verifiers.maths.comparing.values import NoValue, Undefined, approximate, sample_points
from grpo_verifiers.maths.reading.forms import Clause
from grpo_verifiers.maths.reading.tree import (
    REAL,
    REAL_LETTERS,
    SCALARS,
    WHOLE,
    WHOLE_LETTERS,
    ZERO,
    Node,
    anywhere,
    choose_signs,
    contains,
    number,
    rename,
    replaced,
    symbols,
)

MOST_RESIDUES = 10_000
_PARAMETERS = frozenset(("k", "m", "n", "t", "j", "l", "q", "r", "s", "p", "i", WHOLE))
_MOST_OFFSETS = 60
_LINE_LETTERS = frozenset(("t", "s", "u", "r", "k", "lambda", "mu", "alpha"))
_INTEGRATION = ("C", "c", "K")
_CONSTANTS = frozenset(("C", "K", "c", "D", "A", "B", "C_1", "c_1", "C_2", "c_2", "C_3", "c_3"))
_NUMBERED = frozenset(("C_1", "C_2", "C_3", "c_1", "c_2", "c_3"))
_RANGES = frozenset((">", "<", ">=", "<=", "in"))


class Classes(NamedTuple):
    """Whole numbers that leave one of `residues` modulo `modulus`; `name` is the name that has those values, if any."""

    name: str
    residues: frozenset[int]
    modulus: int


def same_residues(gold: Node, answer: Node) -> bool:
    """At least one side is a congruence."""
    if answer[0] == "congruence" and gold[0] in SCALARS:
        return _is_remainder(gold, answer)
    if gold[0] == "congruence" and answer[0] in SCALARS:
        clause = Clause(*gold[2][0])
        return len(gold[2]) == 1 and not any(symbols(side) for side in clause.sides) and _is_remainder(answer, gold)
    first, second = classes_of(gold), classes_of(answer)
    if first is None or second is None or (first.name and second.name and first.name != second.name):
        return False
    modulus = math.lcm(first.modulus, second.modulus)
    # the classes are written out modulo the common multiple: two large moduli would fill the memory
    if modulus // min(first.modulus, second.modulus) > MOST_RESIDUES:
        return False
    return _lifted(first, modulus) == _lifted(second, modulus)


def _lifted(classes: Classes, modulus: int) -> frozenset[int]:
    steps = range(modulus // classes.modulus)
    return frozenset(r + classes.modulus * i for r in classes.residues for i in steps)


def classes_of(node: Node) -> Classes | None:
    """The classes of a congruence, of `n = 3k + 1`, or of `{3k + 1 : k in Z}`; None if it is neither."""
    if node[0] == "congruence":
        return _of_clauses(node)
    if node[0] == "rel" and node[1][0] == "s" and len(node[2]) == 1 and node[2][0][0] == "=":
        return _of_values(node[1][1], node[2][0][1])
    if node[0] == "list" and all(item[0] == "rel" and item[1] == node[2][0][1] for item in node[2]):
        return _joined([classes_of(item) for item in node[2]])
    if node[0] == "builder":
        # `{3k + 1 : k in Z}`, or `{x : x = 3k + 1}`, whose range of k the reader has left out
        said = node[3]
        if node[1]:
            found = classes_of(said) if said[0] in ("rel", "congruence") else None
            return None if found is None or found.name not in ("", node[1]) else found._replace(name="")
        is_whole = said[0] == "rel" and len(said[2]) == 1 and said[2][0] == ("in", ("all", "Z"))
        return _of_values("", node[2]) if is_whole and symbols(node[2]) == symbols(said[1]) else None
    return None


def _of_clauses(node: Node) -> Classes | None:
    found: list[Classes | None] = []
    for entry in node[2]:
        clause = Clause(*entry)
        modulus = _whole(clause.modulus)
        residues = [_whole(choose_signs(r, plus)) for r in clause.residues for plus in (True, False)]
        if modulus is None or modulus < 1 or clause.after is not None or None in residues:
            return None
        name = ""
        for side in clause.sides:
            if side[0] != "s":
                return None
            name = side[1]
        found.append(Classes(name, frozenset(r % modulus for r in residues if r is not None), modulus))
    if node[1] == "and" and len({c.modulus for c in found if c is not None}) > 1:
        return None
    return _joined(found)


def _joined(found: list[Classes | None]) -> Classes | None:
    """The union of classes of values of one name."""
    classes = [c for c in found if c is not None]
    names = {c.name for c in classes if c.name}
    if not classes or len(classes) < len(found) or len(names) > 1:
        return None
    modulus = math.lcm(*(c.modulus for c in classes))
    if modulus > MOST_RESIDUES * min(c.modulus for c in classes):
        return None
    return Classes(next(iter(names), ""), frozenset().union(*(_lifted(c, modulus) for c in classes)), modulus)


def _of_values(name: str, value: Node) -> Classes | None:
    """An arithmetic progression such as `3k + 1`, whose only letter is an integer parameter other than the name."""
    names = {"i" if s == "c i" else s for s in symbols(value)}
    if len(names) != 1 or not names <= _PARAMETERS or name in names:
        return None
    (parameter,) = names
    # two values give start and step, the others test that it is a progression
    at = [_whole(replaced(value, ("s", parameter), number(n))) for n in (0, 1, 2, 7)]
    if None in at:
        return None
    start, one, two, seven = (n for n in at if n is not None)
    step = one - start
    if step == 0 or two != start + 2 * step or seven != start + 7 * step:
        return None
    return Classes(name, frozenset((start % abs(step),)), abs(step))


def _whole(node: Node) -> int | None:
    if node[0] not in SCALARS:
        return None
    try:
        value = value_of(node)
    except Undefined:
        return None
    return int(value) if value is not None and value.denominator == 1 else None


def _is_remainder(wanted: Node, node: Node) -> bool:
    """Whether one true congruence ends in this number, written as the least remainder."""
    if len(node[2]) != 1:
        return False
    clause = Clause(*node[2][0])
    modulus, value = _whole(clause.modulus), _whole(wanted)
    if modulus is None or modulus < 1 or value is None or len(clause.residues) != 1:
        return False
    last = clause.residues[0]
    if clause.after is not None:
        return not clause.sides and _whole(clause.after) == value == _remainder(last, modulus)
    # a remainder is the least one: `9 = 2 (mod 7)` does not answer 9
    if _whole(last) != value or not 0 <= value < modulus or last[0] not in ("n", "neg"):
        return False
    return all(side[0] == "s" or _remainder(side, modulus) == value for side in clause.sides)


def _remainder(node: Node, modulus: int) -> int | None:
    """The least remainder of a number; of a whole power without working it out."""
    if node[0] == "^":
        base, exponent = _whole(node[1]), _whole(node[2])
        if base is not None and exponent is not None and 0 <= exponent < 10**30 and modulus < 10**30:
            return pow(base, exponent, modulus)
    value = _whole(node)
    return None if value is None else value % modulus


def same_families(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether `a + k p` and `b + k q` run through the same values for whole k (`WHOLE`), or lists of such: modulo the common
    multiple of their periods each has the offsets of the other."""
    both = [_progressions(node, trial) for node in (gold, answer)]
    if None in both:
        return False
    (point, _) = sample_points(sorted(symbols(gold) | symbols(answer)), True)

    def times(a: Node, b: Node) -> Fraction:
        value = approximate(("/", a, b), point).value
        return Fraction(value.real).limit_denominator(_MOST_OFFSETS) if abs(value.imag) < 1e-9 else Fraction(0)

    unit = both[0][0][1]  # type: ignore[index]
    spread: list[list[Node]] = []
    try:
        ratios = {period: abs(times(period, unit)) for side in both for _, period in side}  # type: ignore[union-attr]
        least = Fraction(1, math.lcm(*(ratio.denominator for ratio in ratios.values())))
        counts = {period: int(ratio / least) for period, ratio in ratios.items()}
        common = math.lcm(*counts.values())
        if not 0 < common <= _MOST_OFFSETS:
            return False
        length = ("*", number(common * least), unit)
        for side in both:
            spread.append([])
            for offset, period in side:  # type: ignore[union-attr]
                many, exact = common // counts[period], ("*", number(common // counts[period]), period)
                if not (trial.same(length, exact) or trial.same(length, ("neg", exact))):
                    return False
                spread[-1] += [("+", offset, ("*", number(k), period)) for k in range(many)]

        def has(others: list[Node], one: Node) -> bool:
            turns = [(other, times(("+", one, ("neg", other)), length)) for other in others]
            return any(
                m.denominator == 1 and abs(m) < 1000 and trial.same(("+", other, ("*", number(m), length)), one)
                for other, m in turns
            )

        return all(has(spread[0], one) for one in spread[1]) and all(has(spread[1], one) for one in spread[0])
    except (NoValue, ZeroDivisionError):
        return False


def same_antiderivatives(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether two sums that end in one constant of integration differ by a number: `sin^2 x + C` and `-cos^2 x + C`."""
    if not (gold[0] == answer[0] == "+") or symbols(gold) != symbols(answer):
        return False
    free = [("s", name) for name in _INTEGRATION if ("s", name) in gold and ("s", name) in answer]
    rest = [("+", ZERO, *(part for part in node if part not in (*free, "+"))) for node in (gold, answer)]
    names = sorted(symbols(rest[0]) | symbols(rest[1]))
    if len(free) != 1 or len(names) != 1 or free[0][1] in names:
        return False
    # the number is their difference at one place; that it is the same everywhere is what is compared
    gap = ("+", rest[0], ("neg", rest[1]))
    return trial.same(rest[0], ("+", rest[1], replaced(gap, ("s", names[0]), number(1))))


def _items(node: Node) -> tuple[Node, ...]:
    return node[2] if node[0] == "list" else (node,)


def left_names(node: Node) -> set[Node]:
    """What stands left of the signs of equality: one name for `x = 3, x = -3`."""
    return {item[1] for item in _items(node) if item[0] == "rel" and item[1][0] == "s" and item[2][0][0] == "="}


def _progressions(node: Node, trial: ComparisonTrial) -> list[tuple[Node, Node]] | None:
    """Offset and period of each value, None where one is no progression. Steps at even and odd places: (-1)^k has none of its own."""
    found = []
    for value in without_left_sides(_items(node)):
        at = [replaced(value, ("s", WHOLE), number(k)) for k in range(6)]
        step, *others = [("+", at[k + 1], ("neg", at[k])) for k in (0, 1, 4)]
        if value[0] not in SCALARS or WHOLE not in symbols(value) or not all(trial.same(step, one) for one in others):
            return None
        found.append((at[0], step))
    return found


def renamed(gold: Node | None, answer: Node | None) -> Iterator[Node | None]:
    """The answer under each naming that could make it the gold, as written first."""
    if gold is None or answer is None:
        yield answer
        return
    bound, theirs_bound = _bound(gold), _bound(answer)
    # a letter that the answer uses already would fall together with the new one
    if bound and theirs_bound and bound != theirs_bound and bound not in symbols(answer):
        if theirs_bound == "i":
            answer = replaced(answer, ("c", "i"), ("s", bound))
        elif theirs_bound not in symbols(gold):
            answer = rename(answer, {theirs_bound: bound})
    ours, theirs = symbols(gold), symbols(answer)
    if gold[0] in SCALARS and answer[0] == "rel" and answer[1][0] == "s":
        theirs -= {answer[1][1]}  # `y = x + C` for `x + C`
    wanted, found = ours - theirs, theirs - ours
    if {WHOLE, REAL} & (wanted | found):
        yield rename(answer, _whole_names(wanted, found))
        return
    is_line = contains(gold, {"tuple", "matrix"}) and wanted | found <= _LINE_LETTERS
    if len(wanted) == len(found) == 1 and (is_line or _is_period(gold, *wanted, *found)):
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
    """The new name of the parameter of an answer where only one side states that it is any whole or real number."""
    named = WHOLE if WHOLE in wanted | found else REAL
    letters = sorted((found if named in wanted else wanted) & (WHOLE_LETTERS if named == WHOLE else REAL_LETTERS))
    if len(letters) != 1:
        return {}
    return {letters[0]: named} if named in wanted else {named: letters[0]}


def _is_period(gold: Node, wanted: str, found: str) -> bool:
    """The whole number in `k pi` or `3k + 1`."""
    if not {wanted, found} <= WHOLE_LETTERS:
        return False
    if contains(gold, {"c"}) and contains(gold, {"+", "*"}):
        return True
    # `n = 3k + 1`: a whole number by a parameter of its own, with no other letter
    if gold[0] != "rel" or gold[1] not in (("s", "n"), ("s", "N"), ("s", "x")) or len(gold[2]) != 1:
        return False
    value = gold[2][0][1]
    return gold[2][0][0] == "=" and value[0] == "+" and symbols(value) == {wanted}


def _is_family(gold: Node, constants: set[str]) -> bool:
    """Whether the names can be constants of integration: beside other symbols in a sum, or before an exponential."""
    others = symbols(gold) - constants
    if not others:
        return False
    if len(constants) == 1 and constants <= _NUMBERED | {"C", "K"} and gold[0] == "rel" and others <= {"x", "y", "t"}:
        return True
    if len(constants) == 1 and not constants <= {"A", "B"}:
        return contains(gold, {"+"}) or anywhere(
            gold, lambda at: len(at) == 3 and at[0] == "^" and at[1] == ("c", "e") and bool(symbols(at[2]))
        )
    return contains(gold, {"+"}) and (gold[0] == "rel" or constants <= _NUMBERED)


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
