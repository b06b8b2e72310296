"""`numeric`: a number within a tolerance, with or without a unit, or inside a range.

How this works: a number stands alone in the stated answer, or next to a unit; prose around it is not searched for numbers. `read`
has the reader of `math` parse it, and `_quantity` takes value and unit from the tree; it computes only fractions and
powers of ten. Values are exact until `_difference` applies the tolerance, so no digits get lost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple

from grpo_verifiers.answers import Example, StatedAnswer, Where
from grpo_verifiers.kinds.short_text import stated
from grpo_verifiers.maths.reading.answers import read_answer
from grpo_verifiers.maths.reading.tree import Node, number
from grpo_verifiers.maths.reading.units import SCALES, conversion, find_unit, singular, units_agree
from grpo_verifiers.maths.reading.vocabulary import names
from grpo_verifiers.maths.reading.words import FRACTION_WORDS
from grpo_verifiers.text import any_of
from grpo_verifiers.verdict import Verdict, right, wrong
from grpo_verifiers.verifier import BadGold, BadOption

_RANGE = re.compile(r"^(.+?)(?:(?<!\s)\s++)?(?:\.\.\.?|–|—|\bto\b|(?<=[\d\s])-(?=[\s\d]))\s*+(.+)$", re.S)
_GAP = r"(?:\s|~|\\[,;: ])*"
_NAME = r"[^\W\d_]+\.?(?:\^(?:-?\d|\{-?\d\}))?"
_BARE_UNIT = re.compile(rf"(?<=[\d}}°])(?!(?<=0)x){_GAP}({_NAME}(?:(?:\s|[/*·]|\\cdot)+{_NAME})*){_GAP}$")
"""What may be a unit in letters that are not marked as text; not the digits of `0xff`."""
_LETTERS = re.compile(r"[^\W\d_]+")
_ABOUT = re.compile(r"^\\sim(?![a-zA-Z])")
"""The same as `≈` here; to `math` it is a relation of two things."""
_DOLLAR = re.compile(r"(?<!\\)\$")
_MONEY_SIGN = re.compile(r"\\\$|[€£¥]")
_MONEY = ("dollar", "euro", "gbp", "yen")
_NOT_UNITS = frozenset(map(singular, (*SCALES, *FRACTION_WORDS))) | names(
    "by exponent into mod modulo nan power root through to"
)
"""Words that turn the number before them into arithmetic or into another number."""
_TEN = number(10)
_LONGEST = 400
_LARGEST_EXPONENT = 400


@dataclass(frozen=True)
class NumericOptions:
    """Options of `numeric`."""

    extract: Where = "box_or_line"
    """Where the answer is looked for."""
    mark: str = ""
    """What a line of its own begins with that gives the answer: `A:`, `Final answer:`, `<SOLUTION>` (up to `</SOLUTION>`).
    The last such line comes before boxes and other lines; a completion without one is read as without this option."""
    rel_tol: float = 0.0
    """Largest error as a share of the gold."""
    abs_tol: float = 0.0
    """Largest error in the gold's unit; the larger of the two bounds holds."""
    units: Literal["agree", "ignore", "require", "convert"] = "agree"
    """`agree`: may be missing, must not differ. `require`: must be there. `convert`: 2 km equal 2000 m."""
    percent: Literal["sign", "value", "ignore"] = "sign"
    """`sign`: 50% is not 0.5. `value`: it is. `ignore`: the sign is dropped."""


class Quantity(NamedTuple):
    """An exact value with its unit's canonical name, empty where there is none."""

    value: Fraction
    unit: str
    is_percent: bool


class NumericGold(NamedTuple):
    """A quantity, or the two ends of a range."""

    low: Quantity
    high: Quantity
    is_range: bool


class NumericVerifier(StatedAnswer):
    """Right where the number is the gold within the tolerance, or inside the gold's range."""

    Options: ClassVar[type] = NumericOptions
    options: NumericOptions

    def __init__(self, options: NumericOptions) -> None:
        super().__init__(options)
        if options.mark != options.mark.strip() or "\n" in options.mark:
            raise BadOption("mark", "`mark` must be one line of text without blanks round it")
        for name in ("rel_tol", "abs_tol"):
            value = getattr(options, name)
            if not math.isfinite(value) or value < 0:
                raise BadOption(name, f"`{name}` must be a number from 0")

    def compile(self, row: Mapping[str, Any]) -> tuple[NumericGold, ...]:
        """The accepted quantities and ranges: `3..5`, `3 to 5` and a list of two numbers are ranges, in any other list
        each item is accepted."""
        gold = any_of(row.get("answer"))
        if not isinstance(gold, list):
            return (_one(gold),)
        if len(gold) == 2 and all(isinstance(end, int | float) and not isinstance(end, bool) for end in gold):
            return (_range(_one(gold[0]).low, _one(gold[1]).low),)
        if not gold:
            raise BadGold("the list of accepted answers is empty")
        return tuple(_one(item) for item in gold)

    def compare(self, answer: str, gold: tuple[NumericGold, ...]) -> Verdict:
        """Value and unit against each accepted gold; right by the first that fits, else wrong by the first."""
        shown, found = answer[:200], read(answer)
        stated = read_gold(answer) if found is None and any(one.is_range for one in gold) else None
        problems = []
        for one in gold:
            if found is None and one.is_range and stated is not None and stated.is_range:
                problem = self._difference(stated.low, one.low) or self._difference(stated.high, one.high)
                why = "range"
            elif found is None:
                problem, why = "no_number", ""
            elif one.is_range:
                problem = self._difference(found, one.low, -1) or self._difference(found, one.high, 1)
                why = "in_range"
            else:
                problem, why = self._difference(found, one.low), "equal"
            if problem is None:
                return right(shown, why)
            problems.append(problem)
        return wrong(shown, problems[0])

    def _difference(self, found: Quantity, gold: Quantity, side: int = 0) -> str | None:
        """The reason why the two differ; with a side, only too low (-1) or only too high (1) counts."""
        value, how = found.value, self.options.units
        if found.is_percent != gold.is_percent and self.options.percent != "ignore":
            if self.options.percent == "sign":
                return "percent"
            value = value / 100 if found.is_percent else value * 100
        if how == "require" and gold.unit and not found.unit:
            return "no_unit"
        if how != "ignore" and not units_agree(found.unit, gold.unit):
            factor = conversion(found.unit, gold.unit) if how == "convert" else None
            if factor is None:
                return "unit"
            value = value * factor
        gap = value - gold.value
        allowed = max(Fraction(self.options.rel_tol) * abs(gold.value), Fraction(self.options.abs_tol))
        is_off = abs(gap) > allowed if side == 0 else gap * side > allowed
        return ("out_of_range" if side else "unequal") if is_off else None

    def gold_text(self, row: Mapping[str, Any]) -> str:
        """The gold, or the lower end of its range."""
        gold = any_of(row["answer"])
        return stated(str(gold[0]) if isinstance(gold, list) else str(gold), self.options.extract)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example("\\boxed{3.14}", {"answer": 3.14159}, "no tolerance by default"),
            Example("\\boxed{3.14}", {"answer": 3.14159}, "within one part in a hundred", {"rel_tol": 0.01}),
            Example(
                "\\boxed{2000 m}", {"answer": "2 km"}, "another unit is converted where asked", {"units": "convert"}
            ),
            Example("\\boxed{4.2}", {"answer": "4..5"}, "inside the gold's range"),
        ]


def _one(gold: object) -> NumericGold:
    """One accepted gold.

    Raises:
        BadGold: it is no number and no range.
    """
    if gold is None or isinstance(gold, bool | dict | list):
        raise BadGold("no column `answer`" if gold is None else f"the answer {gold!r} is no number")
    if isinstance(gold, float) and not math.isfinite(gold):
        raise BadGold(f"the answer {gold!r} is not finite")
    found = read_gold(str(gold))
    if found is None:
        raise BadGold(f"the answer {str(gold)[:60]!r} is no number")
    return found


def _range(low: Quantity, high: Quantity) -> NumericGold:
    if not low.unit:
        low = low._replace(unit=high.unit, is_percent=low.is_percent or high.is_percent)
    if low.value > high.value:
        raise BadGold("the lower end of the range is above the upper")
    return NumericGold(low, high, True)


def read_gold(text: str) -> NumericGold | None:
    """A quantity, or a range of two."""
    one = read(text)
    if one is not None:
        return NumericGold(one, one, False)
    match = _RANGE.match(text.strip().strip("$[]()"))
    if match is None or len(text) > _LONGEST:
        return None
    low, high = read(match[1]), read(match[2])
    if low is None or high is None or low.value > high.value:
        return None
    return _range(low, high)


def read(text: str) -> Quantity | None:
    """The quantity that the whole text states, else None."""
    if len(text) > _LONGEST or not any(map(str.isnumeric, text)):  # words are no number
        return None
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == "$":
        text = text[1:-1].strip()
    if len(_DOLLAR.findall(text)) == 1:  # two of them enclose a formula
        text = _DOLLAR.sub(r"\\$", text)
    text = _ABOUT.sub("", text)
    answer = read_answer(_BARE_UNIT.sub(_upright, text.rstrip(".,;")))
    tree = answer.tree
    if tree is None or answer.label:
        return None
    if (
        tree[0] == "rel" and len(tree[2]) == 1 and tree[2][0][0] in ("=", "~")
    ):  # a name and its value: `x = 5`, `AB = 5`
        name = tree[1]
        if name[0] in ("s", "c") or (name[0] == "*" and all(part[0] in ("s", "c") for part in name[1:])):
            tree = tree[2][0][1]
    found = _quantity(tree)
    if found is None or not _NOT_UNITS.isdisjoint(found.unit.split()):
        return None
    is_money = _MONEY_SIGN.search(text) is not None
    return None if is_money and found.unit.partition(" /")[0] not in _MONEY else found


def _upright(match: re.Match[str]) -> str:
    """Known units marked as text: neither variables nor functions stand here, so `5 min` and `2/3 m` are measures."""
    names = _LETTERS.findall(match[1].replace("\\cdot", ""))
    is_known = all(find_unit(name) or len(name) > 1 for name in names)
    return f"\\text{{ {match[1]}}}" if is_known else match[0]


def _quantity(node: Node) -> Quantity | None:
    kind = node[0]
    if kind == "/" and node[2][0] == "pct":  # `1/2%` is half of one
        kind, node = "pct", ("pct", ("/", node[1], node[2][1]))
    if kind in ("pct", "deg", "unit", "neg"):
        inner = _quantity(node[1])
        if inner is None:
            return None
        if kind == "pct":
            return inner._replace(is_percent=True)
        if kind == "neg":
            return inner._replace(value=-inner.value)
        name = "degree" if kind == "deg" else str(node[2])
        # a plus marks a sum of two units, which cannot be compared
        return None if name.endswith("+") else inner._replace(unit=f"{inner.unit} {name}".strip())
    value = _value(node)
    return None if value is None else Quantity(value, "", False)


def _value(node: Node) -> Fraction | None:
    """The value of a decimal, a fraction, a number before a word like `million` or a power of ten, else None."""
    if node[0] == "n":
        value: Fraction = node[1]
        return value
    if node[0] == "neg":
        value_or_none = _value(node[1])
        return None if value_or_none is None else -value_or_none
    if node[0] not in ("/", "*", "^") or len(node) != 3:
        return None
    if node[0] == "^":
        power = _value(node[2]) if node[1] == _TEN else None
        is_small = power is not None and power.denominator == 1 and abs(power) <= _LARGEST_EXPONENT
        return Fraction(10) ** int(power) if power is not None and is_small else None
    left, right = _value(node[1]), _value(node[2])
    if left is None or right is None:
        return None
    if node[0] == "/":
        return left / right if right else None
    return left * right if node[2][0] == "^" or right in SCALES.values() else None
