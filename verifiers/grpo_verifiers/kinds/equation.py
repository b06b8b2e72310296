"""`equation`: countdown. An expression that reaches the target with the row's numbers, each used once.

How this works: `evaluate` parses the stated expression, which Python never evaluates: numbers, + - * / and brackets, in exact
fractions. `compare` then checks which numbers it used, and its value. Joining digits to a number, or putting a unary
minus in front, does not use a given number.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
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
_OPERATORS: dict[str, tuple[int, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": (1, operator.add), "-": (1, operator.sub), "*": (2, operator.mul), "/": (2, operator.truediv),
}  # fmt: skip
"""Precedence and function of each operator."""
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
    """The target, and how often each number is given."""

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
    tokens, end = [], 0
    left = left.strip()
    while end < len(left):
        match = _TOKEN.match(left, end)
        if match is None:
            raise BadExpression("no_expression")
        tokens.append(match[1] or match[2])
        end = match.end()
    tokens.append("")
    used: Counter[Fraction] = Counter()
    at = 0

    def parsed(depth: int, strength: int) -> Fraction:
        """A number or a bracket, with the operators after it that bind more tightly than `strength`."""
        nonlocal at
        token, at = tokens[at], at + 1
        if token == "(":
            if depth >= _DEEPEST:
                raise BadExpression("too_deep")
            value = parsed(depth + 1, 0)
            if tokens[at] != ")":
                raise BadExpression("no_expression")
            at += 1
        elif token[:1].isdigit():
            value = Fraction(token)
            used[value] += 1
        else:
            raise BadExpression("no_expression")
        while (sign := tokens[at]) in _OPERATORS and _OPERATORS[sign][0] > strength:
            at += 1
            other = parsed(depth, _OPERATORS[sign][0])
            if sign == "/" and other == 0:
                raise BadExpression("division_by_zero")
            value = _OPERATORS[sign][1](value, other)
        return value

    value = parsed(0, 0)
    if tokens[at]:
        raise BadExpression("no_expression")
    return value, used


def _plain(text: str) -> Fraction | None:
    text = text.strip()
    return Fraction(text) if re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", text) else None


def _exact(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return Fraction(str(value).strip())
