"""`exact` and `set`: short text answers, compared after a stated normaliser (see `text.py`).

`exact` is right where the answer equals the gold, or one of several. `set` reads the answer and the gold as lists and compares
them item by item in any order. A superfluous item is as wrong as a missing one: otherwise naming everything would pay.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from grpo_verifiers.answers import Example, StatedAnswer, Where
from grpo_verifiers.text import accepted, normal
from grpo_verifiers.verdict import Verdict, right, wrong
from grpo_verifiers.verifier import BadGold


@dataclass(frozen=True)
class ExactOptions:
    """Options of `exact`."""

    extract: Where = "box_or_line"
    """Where the answer is looked for: a box, else an answer line; `whole` takes the text after the thinking."""
    casefold: bool = True
    """Upper and lower case are the same."""
    articles: bool = True
    """`false` drops a, an and the before comparing."""
    normalise: bool = True
    """`false` compares the stripped text as it stands."""


class ExactVerifier(StatedAnswer):
    """Right where the answer is the gold. A list as gold means any of them."""

    Options: ClassVar[type] = ExactOptions
    options: ExactOptions

    def compile(self, row: Mapping[str, Any]) -> frozenset[str]:
        """The accepted answers, normalised.

        Raises:
            BadGold: the list of them is empty, or the row has none.
        """
        golds = accepted(row.get("answer"))
        if not golds:
            raise BadGold("the list of accepted answers is empty")
        return frozenset(self._form(as_text(one)) for one in golds)

    def compare(self, answer: str, gold: frozenset[str]) -> Verdict:
        """Equal to one of the golds."""
        is_right = self._form(answer) in gold
        return right(answer[:200], "equal") if is_right else wrong(answer[:200], "unequal")

    def _form(self, text: str) -> str:
        options = self.options
        return normal(text, options.casefold, options.articles) if options.normalise else text.strip()

    def gold_text(self, row: Mapping[str, Any]) -> str:
        """The gold where this verifier looks for it."""
        return stated(as_text(accepted(row["answer"])[0]), self.options.extract)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(
                "It is \\boxed{\\text{Paris}}.", {"answer": "paris"}, "case, LaTeX wrappers and marks do not count"
            ),
            Example("\\boxed{Paris} or \\boxed{Lyon}", {"answer": "Paris"}, "a hedge is never right"),
            Example(
                "\\boxed{New York City}", {"answer": ["NYC", "New York City"]}, "a list of golds means any of them"
            ),
        ]


def as_text(gold: Any) -> str:
    """The text of a gold.

    Raises:
        BadGold: it is missing, empty, or no text or number.
    """
    if gold is None:
        raise BadGold("no column `answer`")
    if isinstance(gold, bool | dict | list):
        raise BadGold(f"the answer {str(gold)[:60]!r} is a {type(gold).__name__}, not text")
    text = str(gold).strip()
    if not text:
        raise BadGold("the answer is empty")
    return text


def stated(text: str, where: Where) -> str:
    """A completion that states this answer."""
    if where in ("whole", "last_line"):
        return text
    return f"The answer is {text}" if where == "answer_line" else f"\\boxed{{{text}}}"


# set

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
    """Whether an item that appears twice differs from one that appears once."""
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
        row = {"answer": ["red", "green", "blue"]}
        return [
            Example("\\boxed{Blue, red and green}", row, "any order"),
            Example("\\boxed{red, green, blue, black}", row, "one too many is wrong"),
            Example("\\boxed{red, green}", row, "part of the score where `partial` asks for it", {"partial": "f1"}),
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
