"""`set`: several short text answers in any order, compared item by item with the normaliser of `text.py`.

An item too many is as wrong as one too few: else naming everything would pay.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from grpo_verifiers.answers import Example, StatedAnswer, Where
from grpo_verifiers.kinds.exact import as_text, stated
from grpo_verifiers.text import normal
from grpo_verifiers.verdict import Verdict, right, wrong
from grpo_verifiers.verifier import BadGold

_SEPARATORS = re.compile(
    r"(?:(?:(?<!\s)\s++)?(?:[,;|]|\\\\)|(?:(?<!\s)[^\S\n]++)?\n)\s*+(?:(?:and|&)\s++)?|(?<!\s)\s++(?:and|&)\s++"
)
_BULLET = re.compile(r"^ ?(?:[-*•]|\d+[.)])\s+", re.MULTILINE)
_BLANKS = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" ?\n[ \n]*")
MOST_ITEMS = 1000
MOST_CHARS = 20_000


@dataclass(frozen=True)
class SetOptions:
    """Options of `set`."""

    extract: Where = "box_or_line"
    """Where the answer is looked for."""
    casefold: bool = True
    """Upper and lower case are the same."""
    articles: bool = True
    """`false` drops a, an and the before comparing."""
    repeats: Literal["ignore", "count"] = "ignore"
    """Whether an item said twice differs from one said once."""
    partial: Literal["none", "jaccard", "f1"] = "none"
    """Score of an incomplete answer: nothing, shared over all items, or F1."""


class SetVerifier(StatedAnswer):
    """Right where the items are those of the gold, in any order."""

    Options: ClassVar[type] = SetOptions
    options: SetOptions

    def compile(self, row: Mapping[str, Any]) -> Counter[str]:
        """The gold's items, normalised; one that is named twice counts twice.

        Raises:
            BadGold: the answer has no items.
        """
        items = self._items(_gold_items(row.get("answer")))
        if not items:
            raise BadGold("the answer has no items")
        return items

    def compare(self, answer: str, gold: Counter[str]) -> Verdict:
        """The same items, or part of the score for some of them."""
        items = self._items(split(answer))
        if not items:
            return wrong(answer[:200], "no_items")
        if items == gold:
            return right(answer[:200], "equal")
        shared = (items & gold).total()
        reason = "missing" if not items - gold else "extra" if not gold - items else "unequal"
        if self.options.partial == "jaccard":
            score = shared / (items | gold).total()
        elif self.options.partial == "f1":
            score = 2 * shared / (items.total() + gold.total())
        else:
            score = 0.0
        return wrong(answer[:200], reason, score=score)

    def _items(self, parts: list[str]) -> Counter[str]:
        forms = [normal(part, self.options.casefold, self.options.articles) or part.strip() for part in parts]
        counted = Counter(form for form in forms if form)
        return Counter(dict.fromkeys(counted, 1)) if self.options.repeats == "ignore" else counted

    def gold_text(self, row: Mapping[str, Any]) -> str:
        """The gold's items, comma-separated."""
        return stated(", ".join(_gold_items(row["answer"])), self.options.extract)

    @classmethod
    def examples(cls) -> list[Example]:
        """For `grpo explain set`."""
        row = {"answer": ["red", "green", "blue"]}
        return [
            Example("\\boxed{Blue, red and green}", row, "any order"),
            Example("\\boxed{red, green, blue, black}", row, "one too many is wrong"),
            Example(
                "\\boxed{red, green}", row, "part of the score where `partial` asks for it", {"partial": "f1"}
            ),
        ]


def _gold_items(gold: Any) -> list[str]:
    if isinstance(gold, list):
        return [as_text(item) for item in gold]
    return split(as_text(gold))


def split(text: str) -> list[str]:
    """The items of a written list: JSON, bullets, or separated by commas, semicolons, lines or `and`."""
    text = _BLANKS.sub(" ", text[:MOST_CHARS]).strip()
    text = _LINES.sub("\n", text)
    if text[:1] == "[" and text[-1:] == "]":
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, list) and len(parsed) <= MOST_ITEMS:
            return [str(item) for item in parsed if isinstance(item, str | int | float)]
    text = text.removeprefix("\\{").removesuffix("\\}")
    if len(text) > 1 and text[0] + text[-1] in ("{}", "[]", "()"):
        text = text[1:-1]
    text = _BULLET.sub("", text)
    parts = _SEPARATORS.split(text)
    return [part for part in parts if part.strip()] if len(parts) <= MOST_ITEMS else []
