"""`equation`: countdown. An expression that reaches the target with the row's numbers, each used once.

The expression is parsed here, never evaluated by Python: numbers, + - * / and brackets, in exact fractions. A number
made by writing digits together, or a unary minus in front of one, is no use of a given number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple

from grpo_verifiers.answers import Example, StatedAnswer, Where
from grpo_verifiers.verdict import Verdict, right, wrong
from grpo_verifiers.verifier import BadGold

_TOKEN = re.compile(r"(?:(?<!\s)\s++)?(?:(\d{1,15}(?:\.\d{1,15})?)|([-+*/()]))")
_SPELLINGS = {
    "\\times": "*", "\\cdot": "*", "×": "*", "·": "*", "∙": "*", "\\div": "/", "÷": "/", "∕": "/", "−": "-", "–": "-",
    "\\left": "", "\\right": "", "\\,": "", "$": "", "[": "(", "]": ")", "{": "(", "}": ")",
}  # fmt: skip
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_LONGEST = 500
_DEEPEST = 30


@dataclass(frozen=True)
class EquationOptions:
    """Options of `equation`."""

    extract: Where = "box_or_line"
    """Where the expression is looked for."""
    use: Literal["all", "some"] = "all"
    """Whether every number must be used; none may be used twice in either case."""
    format_score: float = 0.0
    """Score of a well-formed expression over the right numbers that misses the target."""


class EquationGold(NamedTuple):
    """The target and how often each number is there."""

    target: Fraction
    numbers: Counter[Fraction]


class EquationVerifier(StatedAnswer):
    """Right where the expression uses the numbers as allowed and has the target's value."""

    Options: ClassVar[type] = EquationOptions
    options: EquationOptions
    columns: tuple[str, ...] = ()  # several spellings are read; `compile` names what is missing

    def compile(self, row: Mapping[str, Any]) -> EquationGold:
        """Target and numbers (columns `target`, and `numbers` or `nums`, also inside `metadata`), as exact fractions.

        Raises:
            BadGold: one is missing, or no number.
        """
        metadata = row.get("metadata")
        row = {**metadata, **row} if isinstance(metadata, Mapping) else row
        numbers = row.get("numbers", row.get("nums"))
        if "target" not in row:
            raise BadGold("no column `target`")
        if not isinstance(numbers, list) or not numbers:
            raise BadGold("`numbers` must be a list of numbers")
        try:
            return EquationGold(_exact(row["target"]), Counter(_exact(number) for number in numbers))
        except (ValueError, TypeError, OverflowError, ZeroDivisionError):
            raise BadGold(f"`target` and `numbers` must be numbers, got {row['target']!r} and {numbers!r}") from None

    def compare(self, answer: str, gold: EquationGold) -> Verdict:
        """Parse, count the numbers, compare the value."""
        shown = answer[:200]
        try:
            value, used = evaluate(answer, gold.target)
        except BadExpression as err:
            return wrong(shown, str(err))
        if used - gold.numbers:
            return wrong(shown, "foreign_number")
        if self.options.use == "all" and gold.numbers - used:
            return wrong(shown, "unused_number")
        if value != gold.target:
            return wrong(shown, "unequal", score=self.options.format_score)
        return right(shown, "equal")

    @classmethod
    def examples(cls) -> list[Example]:
        row = {"target": 24, "numbers": [3, 3, 8, 8]}
        return [
            Example("\\boxed{8 / (3 - 8 / 3)}", row, "exact fractions"),
            Example("\\boxed{8 \\times 3 = 24}", row, "not every number is used"),
            Example("\\boxed{24}", row, "the target is not one of the numbers"),
        ]


class BadExpression(ValueError):
    """The text is no expression of the allowed form; the message is the reason code."""


def evaluate(text: str, target: Fraction | None = None) -> tuple[Fraction, Counter[Fraction]]:
    """Value and numbers of an expression; `expression = number` is read where the number is the target.

    Raises:
        BadExpression: it is too long, too deep, no arithmetic, or divides by zero.
    """
    if len(text) > _LONGEST:
        raise BadExpression("too_long")
    for _ in range(10):
        text, n = _FRACTION.subn(r"((\1)/(\2))", text)
        if not n:
            break
    for spelling, sign in _SPELLINGS.items():
        text = text.replace(spelling, sign)
    text = text.strip().rstrip(".")
    left, equals, rest = text.partition("=")
    if equals:
        left, rest = (rest, left) if _plain(left) is not None and _plain(rest) is None else (left, rest)
        if _plain(rest) is None or _plain(rest) != target:
            raise BadExpression("wrong_right_side")
    parser = _Parser(_tokens(left))
    value = parser.sum(0)
    if parser.at < len(parser.tokens):
        raise BadExpression("no_expression")
    return value, parser.used


def _plain(text: str) -> Fraction | None:
    text = text.strip()
    return Fraction(text) if re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", text) else None


def _exact(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return Fraction(str(value).strip())


def _tokens(text: str) -> list[str]:
    out, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadExpression("no_expression")
        out.append(match[1] or match[2])
        at = match.end()
    if not out:
        raise BadExpression("no_expression")
    return out


class _Parser:
    """Recursive descent: sums of products of numbers and brackets."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.used: Counter[Fraction] = Counter()

    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def sum(self, depth: int) -> Fraction:
        value = self._product(depth)
        while (sign := self._next()) in ("+", "-"):
            self.at += 1
            other = self._product(depth)
            value = value + other if sign == "+" else value - other
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._atom(depth)
        while (sign := self._next()) in ("*", "/"):
            self.at += 1
            other = self._atom(depth)
            if sign == "/" and other == 0:
                raise BadExpression("division_by_zero")
            value = value * other if sign == "*" else value / other
        return value

    def _atom(self, depth: int) -> Fraction:
        token = self._next()
        self.at += 1
        if token == "(":
            if depth >= _DEEPEST:
                raise BadExpression("too_deep")
            value = self.sum(depth + 1)
            if self._next() != ")":
                raise BadExpression("no_expression")
            self.at += 1
            return value
        if not token or not token[0].isdigit():
            raise BadExpression("no_expression")
        value = Fraction(token)
        self.used[value] += 1
        return value
