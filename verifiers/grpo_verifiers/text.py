"""How text answers are made comparable: the one normaliser of `exact`, `set` and `choice`.

In order: Unicode NFKC, LaTeX text wrappers and emphasis off, white space to single blanks, case folded, marks at the
ends off, articles off (only where asked). Marks inside a word stay: `C++`, `don't` and `3.5` are not touched.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

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
    text = _trimmed(text)
    if casefold:
        text = text.casefold()
    if not articles:
        text = " ".join(_ARTICLE.sub("", text).split())
    return text


def unwrapped(text: str) -> str:
    r"""The text without `\text{…}` and its like."""
    return _WRAPPER.sub(r"\1", text) if "\\" in text else text


def without_end(text: str, runs: re.Pattern[str]) -> str:
    """The text without the last of these runs, where it ends the text. A pattern that ends in `$` would try every place of a run."""
    last = None
    for last in runs.finditer(text):  # noqa: B007 - the last one counts
        pass
    return text[: last.start()] if last is not None and last.end() == len(text) else text


def _trimmed(text: str) -> str:
    sign = "-" if text[:1] == "-" else ""
    for _ in range(8):
        before = text
        text = text.strip(_EDGES)
        if len(text) > 1 and _PAIRS.get(text[0]) == text[-1] and text[0] not in text[1:]:
            text = text[1:-1]
        if text == before:
            break
    return text if text else sign


def printable(text: str, *, lines: bool = False) -> str:
    r"""Text from elsewhere that any stream can take and that steers no terminal: what does not print becomes an escape.

    ESC is `\x1b`, half a surrogate pair `\udcff`; white space becomes blanks. With `lines` the ends of lines stay.
    """
    if text.isprintable():
        return text
    if lines:
        return "\n".join(map(printable, text.splitlines()))
    text = text.translate(_BLANKS)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
