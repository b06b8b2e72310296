"""Golds as rows hold them: one answer, or a list in which any item is accepted.

A list that was written as JSON text (`["34"]`, as many published sets have it) is that list. Without a text among its
items it stays the text it is: `[2, 3]` is an interval to a mathematician and a value to a programmer.
"""

from __future__ import annotations

import json

PLACEHOLDERS = frozenset(
    (
        "n/a", "#n/a", "nan", "null", "none", "nil", "proof", "prove", "notfound", "not found", "not_found", "missing",
        "no answer", "no_answer", "not available", "unavailable", "not provided", "not given", "see solution",
        "see above", "tbd", "todo", "placeholder", "empty", "error",
    )
)  # fmt: skip
"""What stands in a gold column where there was no answer, folded and without marks around."""


def any_of(gold: object) -> object:
    """The gold with JSON text of a list of answers read as the list; everything else as it is."""
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
    """The accepted answers that are none, such as `N/A` or `proof`, as they are written."""
    if isinstance(gold, str) and gold[-1:].isdigit():
        return []  # the most golds by far, and no placeholder ends so
    texts = [one.strip() for one in accepted(gold) if isinstance(one, str)]
    return [text for text in texts if _bare(text) in PLACEHOLDERS]


def _bare(text: str) -> str:
    """Folded, without marks around. An answer that somebody typeset, such as `\\text{None}`, was meant."""
    return " ".join(text.casefold().strip(" .<>()[]*_-'\"`").split())
