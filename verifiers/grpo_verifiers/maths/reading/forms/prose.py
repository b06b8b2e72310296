"""A sentence as its words and its formulas in order, so that neither a word nor a sign of it is lost."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from grpo_verifiers.maths.reading.lexer import canonical, lex
from grpo_verifiers.maths.reading.reader import read
from grpo_verifiers.maths.reading.tokens.token import Token, Unreadable
from grpo_verifiers.maths.reading.tree import Node

_STOPS = frozenset((",", ".", ";", ":", "!", "?", '"', "`", "&"))
_JOINERS = frozenset(("and", "or"))


class Formula(NamedTuple):
    """A formula inside a sentence; `tree` is None where it could not be read."""

    shown: str
    tree: Node | None


Part = str | Formula
"""A run of words in lower case, or a formula."""


@lru_cache(maxsize=20_000)
def sentence(text: str) -> tuple[Part, ...]:
    """Runs of words and formulas in turn; empty if the text cannot be taken apart."""
    try:
        tokens = lex(text)
    except (Unreadable, RecursionError):
        return ()
    parts: list[Part] = []
    words: list[str] = []
    formula: list[Token] = []
    for i, token in enumerate(tokens):
        if _is_word(tokens, i):
            _close(formula, parts)
            words.append(token.value.lower())
        # stops between formulas are punctuation; within one a comma parts items
        elif _is_hyphen(tokens, i) or (not formula and token.value in _STOPS):
            continue
        else:
            if words:
                parts.append(" ".join(words))
                words = []
            formula.append(token)
    _close(formula, parts)
    if words:
        parts.append(" ".join(words))
    return tuple(parts)


def _close(formula: list[Token], parts: list[Part]) -> None:
    # the full stop of the sentence is not part of its last formula
    while formula and formula[-1].value in _STOPS:
        formula.pop()
    if formula:
        try:
            tree: Node | None = read(list(formula))
        except (Unreadable, RecursionError):
            tree = None
        parts.append(Formula(canonical(formula), tree))
        formula.clear()


def _is_word(tokens: list[Token], i: int) -> bool:
    token = tokens[i]
    if token.kind == "w":
        return token.value not in _JOINERS or not _joins_values(tokens, i)
    if token.kind == "c" and token.value in _JOINERS:
        return not _joins_values(tokens, i)
    if token.kind == "s" and token.value in "aA":  # the article between two words
        return 0 < i < len(tokens) - 1 and tokens[i - 1].kind == tokens[i + 1].kind == "w"
    return False


def _joins_values(tokens: list[Token], i: int) -> bool:
    """Whether `and` or `or` parts two formulas, not two words."""
    return 0 < i < len(tokens) - 1 and tokens[i - 1].kind != "w" and tokens[i + 1].kind != "w"


def _is_hyphen(tokens: list[Token], i: int) -> bool:
    return (
        tokens[i].value == "-"
        and 0 < i < len(tokens) - 1
        and tokens[i - 1].kind == tokens[i + 1].kind == "w"
        and not tokens[i].spaced
        and not tokens[i + 1].spaced
    )
