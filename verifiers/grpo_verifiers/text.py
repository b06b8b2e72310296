"""Normalises text answers and golds for comparison.

`normal` is the one normaliser of `exact`, `set` and `choice`. In order: Unicode NFKC, LaTeX text wrappers and emphasis
off, white space to single blanks, case folded, marks at the ends off, articles off (only where asked). Marks inside a
word stay, as in `C++`, `don't` and `3.5`.

`accepted` reads a gold: one answer, or a list in which any item is accepted. Many published sets write that list as JSON text
(`["34"]`). JSON text of numbers alone stays text: `[2, 3]` is an interval to a mathematician and a value to a programmer.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
PLACEHOLDERS = frozenset(
    (
        "n/a", "#n/a", "nan", "null", "none", "nil", "proof", "prove", "notfound", "not found", "not_found", "missing",
        "no answer", "no_answer", "not available", "unavailable", "not provided", "not given", "see solution",
        "see above", "tbd", "todo", "placeholder", "empty", "error",
    )
)  # fmt: skip
"""Texts of gold columns that mean "no answer", case-folded and without surrounding punctuation."""


def any_of(gold: object) -> object:
    """The gold; JSON text of a list of answers is parsed, everything else is unchanged."""
    if not isinstance(gold, str) or "[" not in gold or not gold.lstrip().startswith("["):
        return gold
    try:
        value = json.loads(gold)
    except (ValueError, RecursionError):
        return gold
    is_answers = isinstance(value, list) and all(isinstance(one, str | int | float) for one in value)
    return value if is_answers and any(isinstance(one, str) for one in value) else gold


def accepted(gold: object) -> list[object]:
    """The accepted answers: the items of a list, or the gold alone."""
    found = any_of(gold)
    return list(found) if isinstance(found, list | tuple) else [found]


def placeholders(gold: object) -> list[str]:
    """The accepted answers that are placeholders, such as `N/A` or `proof`, as written."""
    if isinstance(gold, str) and gold[-1:].isdigit():
        return []  # most golds end in a digit, and no placeholder does
    texts = [one.strip() for one in accepted(gold) if isinstance(one, str)]
    # strip only punctuation at the ends: a typeset answer such as `\text{None}` is a real one
    return [text for text in texts if " ".join(text.casefold().strip(" .<>()[]*_-'\"`").split()) in PLACEHOLDERS]


_WRAPPER = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_SPACING = re.compile(r"\\[,;:! ]|~|\\quad|\\qquad")
_EDGES = " \t\r\n.,;:!?\"'`*_$“”‘’«»"
_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_ARTICLE = re.compile(r"\b(?:a|an|the)\s+", re.IGNORECASE)
_LONGEST = 10_000
_BLANKS = str.maketrans("\n\r\t\v\f", "     ")


@lru_cache(maxsize=4096)
def normal(text: str, casefold: bool = True, articles: bool = True) -> str:
    """The comparable form; `articles` False drops a, an, the."""
    text = unicodedata.normalize("NFKC", text[:_LONGEST])
    text = " ".join(_SPACING.sub(" ", unwrapped(text)).split())
    sign = "-" if text[:1] == "-" else ""
    for _ in range(8):
        before = text
        text = text.strip(_EDGES)
        if len(text) > 1 and _PAIRS.get(text[0]) == text[-1] and text[0] not in text[1:]:
            text = text[1:-1]
        if text == before:
            break
    text = text or sign
    if casefold:
        text = text.casefold()
    if not articles:
        text = " ".join(_ARTICLE.sub("", text).split())
    return text


def unwrapped(text: str) -> str:
    r"""The text without `\text{…}` and its like."""
    return _WRAPPER.sub(r"\1", text) if "\\" in text else text


def last_of(found: Iterable[T]) -> T | None:
    """The last of several, None of none."""
    last = None
    for last in found:  # noqa: B007 - the last one counts
        pass
    return last


def without_end(text: str, runs: re.Pattern[str]) -> str:
    """The text without a final run of these characters. A pattern that ends in `$` would be tried at every place of a
    run."""
    last = last_of(runs.finditer(text))
    return text[: last.start()] if last is not None and last.end() == len(text) else text


def printable(text: str, *, lines: bool = False) -> str:
    r"""Foreign text made safe for any stream and terminal: characters that do not print become escapes.

    ESC is `\x1b`, half a surrogate pair `\udcff`; white space becomes blanks. With `lines` the ends of lines stay.
    """
    if text.isprintable():
        return text
    if lines:
        return "\n".join(map(printable, text.splitlines()))
    text = text.translate(_BLANKS)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
