"""`numeric`: a number within a tolerance, with or without a unit, or inside a range.

A number stands alone in the stated answer, or beside a unit; prose around it is not searched for numbers. Values are
exact decimals and fractions until the tolerance is applied, so no digits get lost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple

from grpo_verifiers.answers import Example, StatedAnswer, Where
from grpo_verifiers.golds import any_of
from grpo_verifiers.kinds.exact import stated
from grpo_verifiers.maths.reading.units import SCALES, canonical_unit, conversion, find_unit, units_agree
from grpo_verifiers.verdict import Verdict, right, wrong
from grpo_verifiers.verifier import BadGold, BadOption

_DIGITS = r"(?:\d{1,3}(?:(?:,|\\,|\{,\}|\u202f|\u00a0|_)\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMBER = re.compile(
    rf"(?P<sign>[+\-−–])?\s*(?P<money>\\?[$€£¥])?\s*(?P<digits>{_DIGITS})"
    r"(?:\s*/\s*(?P<below>\d{1,30}))?"
    r"(?:\s*(?:[eE]|(?:\\times|\\cdot|[x×*·])\s*10\s*\^?)\s*\{?\s*(?P<exponent>[+\-−]?\d{1,4})\s*\}?)?"
    r"\s*(?P<percent>\\?%)?"
)
_FRACTION = re.compile(r"(?P<sign>[+\-−])?\s*\\[dt]?frac\s*\{\s*(\d{1,30})\s*\}\s*\{\s*(\d{1,30})\s*\}")
_RANGE = re.compile(r"^(.+?)\s*(?:\.\.\.?|–|—|\bto\b|(?<=[\d\s])-(?=[\s\d]))\s*(.+)$", re.S)
_ABOUT = re.compile(r"^(?:=|≈|~|\\approx|\\sim|about|approximately|roughly|around|ca\.|exactly)\s*", re.I)
_LEFT_SIDE = re.compile(r"^\s*(?!not\b)[A-Za-z][A-Za-z_0-9{}\\]{0,20}\s*(?:=|\\approx|≈)\s*")
_WRAPPER = re.compile(r"\\(?:text|mathrm|mbox|textrm|operatorname)\s*\{([^{}]*)\}")
_WORD = re.compile(r"[^\W\d_]+|\^\d|/")
_MONEY = {"$": "dollar", "€": "euro", "£": "gbp", "¥": "yen"}
_SIGNS = {
    "²": "^2",
    "³": "^3",
    "^{2}": "^2",
    "^{3}": "^3",
    "°C": " celsius",
    "°F": " fahrenheit",
    "°": " degree",
    "¢": " cent",
}
_SIGNS |= {sign: f" {word}" for sign, word in _MONEY.items()}
_NOT_UNITS = frozenset(
    [
        "and",
        "or",
        "plus",
        "minus",
        "times",
        "over",
        "divided",
        "by",
        "into",
        "half",
        "third",
        "quarter",
        "thirds",
        "quarters",
        "fourths",
        "fifths",
        "tenths",
        "factorial",
        "pi",
        "root",
        "sqrt",
        "mod",
        "modulo",
        "negative",
        "positive",
        "not",
        "if",
        "else",
        "to",
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "twenty",
        "thirty",
        "forty",
        "fifty",
        "hundred",
        "thousand",
        "million",
        "billion",
        "trillion",
        "dozen",
        "infinity",
        "inf",
        "nan",
        "power",
        "exponent",
        "than",
        "false",
        "true",
        "wrong",
        "incorrect",
        "maybe",
        "perhaps",
        "through",
    ]
)
"""Words that make arithmetic, another number or a doubt of what follows a number."""
_LONGEST = 400
_LARGEST_EXPONENT = 400


@dataclass(frozen=True)
class NumericOptions:
    """Options of `numeric`."""

    extract: Where = "box_or_line"
    """Where the answer is looked for."""
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
        if _are_ends(gold):
            return (_range(_one(gold[0]).low, _one(gold[1]).low),)
        if not gold:
            raise BadGold("the list of accepted answers is empty")
        return tuple(_one(item) for item in gold)

    def compare(self, answer: str, gold: tuple[NumericGold, ...]) -> Verdict:
        """Value and unit against each accepted gold; the first that fits, else what is said of the first."""
        verdicts = [self._against(answer, one) for one in gold]
        return next((verdict for verdict in verdicts if verdict.score == 1.0), verdicts[0])

    def _against(self, answer: str, gold: NumericGold) -> Verdict:
        shown = answer[:200]
        found = read(answer)
        if found is None:
            if gold.is_range and (said := read_gold(answer)) is not None and said.is_range:
                ends = self._difference(said.low, gold.low) or self._difference(said.high, gold.high)
                return right(shown, "range") if ends is None else wrong(shown, ends)
            return wrong(shown, "no_number")
        if gold.is_range:
            below, above = self._difference(found, gold.low, -1), self._difference(found, gold.high, 1)
            problem = below or above
            return right(shown, "in_range") if problem is None else wrong(shown, problem)
        problem = self._difference(found, gold.low)
        return right(shown, "equal") if problem is None else wrong(shown, problem)

    def _difference(self, found: Quantity, gold: Quantity, side: int = 0) -> str | None:
        """Why the two differ; with a side only too low (-1) or too high (1) counts."""
        value, reason = self._in_unit_of(found, gold)
        if value is None:
            return reason
        gap = value - gold.value
        allowed = max(Fraction(self.options.rel_tol) * abs(gold.value), Fraction(self.options.abs_tol))
        is_off = abs(gap) > allowed if side == 0 else gap * side > allowed
        return ("out_of_range" if side else "unequal") if is_off else None

    def _in_unit_of(self, found: Quantity, gold: Quantity) -> tuple[Fraction | None, str]:
        value = found.value
        if found.is_percent != gold.is_percent and self.options.percent != "ignore":
            if self.options.percent == "sign":
                return None, "percent"
            value = value / 100 if found.is_percent else value * 100
        how = self.options.units
        if how == "require" and gold.unit and not found.unit:
            return None, "no_unit"
        if how == "ignore" or units_agree(found.unit, gold.unit):
            return value, ""
        factor = conversion(found.unit, gold.unit) if how == "convert" else None
        return (None, "unit") if factor is None else (value * factor, "")

    def gold_text(self, row: Mapping[str, Any]) -> str:
        """The gold, or the lower end of its range."""
        gold = any_of(row["answer"])
        return stated(str(gold[0]) if isinstance(gold, list) else str(gold), self.options.extract)

    @classmethod
    def examples(cls) -> list[Example]:
        """For `grpo explain numeric`."""
        return [
            Example("\\boxed{3.14}", {"answer": 3.14159}, "no tolerance by default"),
            Example("\\boxed{3.14}", {"answer": 3.14159}, "within one part in a hundred", {"rel_tol": 0.01}),
            Example(
                "\\boxed{2000 m}",
                {"answer": "2 km"},
                "another unit is converted where asked",
                {"units": "convert"},
            ),
            Example("\\boxed{4.2}", {"answer": "4..5"}, "inside the gold's range"),
        ]


def _are_ends(gold: list[Any]) -> bool:
    return len(gold) == 2 and all(isinstance(end, int | float) and not isinstance(end, bool) for end in gold)


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
    if len(text) > _LONGEST:
        return None
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == "$":
        text = text.strip("$").strip()
    text = _ABOUT.sub("", text)
    text = (
        _ABOUT.sub("", _LEFT_SIDE.sub("", text)).removeprefix("\\(").removesuffix("\\)").strip().rstrip(".,;")
    )
    match = _FRACTION.match(text)
    if match is not None and int(match[3]) != 0:
        value = Fraction(int(match[2]), int(match[3]))
        return _with_unit(
            -value if match["sign"] not in (None, "+") else value, text[match.end() :], None, False
        )
    match = _NUMBER.match(text)
    if match is None:
        return None
    value_or_none = _value(match)
    if value_or_none is None:
        return None
    return _with_unit(value_or_none, text[match.end() :], match["money"], match["percent"] is not None)


def _value(match: re.Match[str]) -> Fraction | None:
    digits = re.sub(r"[^\d.]", "", match["digits"])
    if not digits.isascii():
        digits = "".join(str(int(c)) if c.isdigit() else c for c in digits)
    value = Fraction(digits.rstrip(".") or "0")
    if match["below"] is not None:
        if int(match["below"]) == 0:
            return None
        value /= int(match["below"])
    if match["exponent"] is not None:
        exponent = int(match["exponent"].replace("−", "-"))
        if abs(exponent) > _LARGEST_EXPONENT:
            return None
        value *= Fraction(10) ** exponent
    return -value if match["sign"] not in (None, "+") else value


def _with_unit(value: Fraction, rest: str, money: str | None, is_percent: bool) -> Quantity | None:
    rest = rest.strip().strip("$").strip()
    scale, _, after = rest.partition(" ")
    if scale.lower() in SCALES and not is_percent:
        value, rest = value * SCALES[scale.lower()], after.strip()
    if money is not None:
        return Quantity(value, _MONEY[money.lstrip("\\")], is_percent) if not rest else None
    if not rest:
        return Quantity(value, "", is_percent)
    if re.fullmatch(r"(?:percent|per cent|pct)\.?", rest, re.I):
        return Quantity(value, "", True)
    unit = unit_name(rest)
    return None if unit is None else Quantity(value, unit, is_percent)


def unit_name(text: str) -> str | None:
    """The canonical name of a unit written after a number; None where the text is not up to four words of a unit."""
    text = (
        _WRAPPER.sub(r" \1 ", text[:120])
        .replace("^\\circ", "°")
        .replace("^{\\circ}", "°")
        .replace("\\,", " ")
    )
    for sign, word in _SIGNS.items():
        text = text.replace(sign, word)
    words = _WORD.findall(text)
    if not words or len(words) > 6 or _WORD.sub("", text).strip(" .{}"):
        return None
    if any(
        word.lower() in _NOT_UNITS or (len(word) == 1 and word.isalpha() and find_unit(word) is None)
        for word in words
    ):
        return None
    if any(not word.isalpha() and word[0] not in "^/" for word in words):
        return None  # `½` is a letter to the pattern
    if words[0].startswith(("^", "/")) or words[0].lower() in ("squared", "cubed"):
        return None
    return canonical_unit(tuple(words))
