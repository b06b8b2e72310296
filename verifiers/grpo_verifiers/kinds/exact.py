"""`exact`: a short text answer equal to the gold, or to one of several, after a stated normaliser (see `text.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from grpo_verifiers.answers import Example, StatedAnswer, Where
from grpo_verifiers.golds import accepted
from grpo_verifiers.text import normal
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
        """For `grpo explain exact`."""
        return [
            Example(
                "It is \\boxed{\\text{Paris}}.",
                {"answer": "paris"},
                "case, LaTeX wrappers and marks do not count",
            ),
            Example("\\boxed{Paris} or \\boxed{Lyon}", {"answer": "Paris"}, "a hedge is never right"),
            Example(
                "\\boxed{New York City}",
                {"answer": ["NYC", "New York City"]},
                "a list of golds means any of them",
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
