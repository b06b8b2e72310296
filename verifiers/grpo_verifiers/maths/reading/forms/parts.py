"""Answers to a question in several parts: `(a) 12, (b) 7`."""

from __future__ import annotations

import re

from grpo_verifiers.text import without_end

_LABEL = re.compile(
    r"(?P<opened>\\(?:text|mathrm|textbf|mathbf)\s*\{[\s,;]*(?:and\s+)?)?(?:[Pp]art\s*)?"
    r"(?:(?P<open>\()\s*)?(?P<name>i{1,3}|iv|v|[a-h]|[1-8])\s*\)(?:\s*[:.=])?\s*(?(opened)(?P<closed>\})?)"
)
_ORDERS = (("i", "ii", "iii", "iv", "v"), tuple("abcdefgh"), tuple("12345678"))
_ONE_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_BETWEEN = re.compile(r"(?:\s|[,;.&]|\\q?quad|\\\\|\\[ ,;:!]|\band\b|\\text\s*+\{\s*+(?:and)?[\s,;]*+\})++")


def split_parts(text: str) -> list[str] | None:
    """The text behind each label, in the order of the labels; None unless they are the first of their kind, two at least."""
    text = text.strip()
    whole = _ONE_TEXT.fullmatch(text)
    text = text if whole is None else whole[1]
    first = _LABEL.match(text)
    if first is None:
        return None
    # the first label says which alphabet counts: an `(i)` within part (a) is no label then
    order = next(names for names in _ORDERS if first["name"] in names)
    labels = [m for m in _LABEL.finditer(text) if m["name"] in order and _is_label(m, text)]
    names = [label["name"] for label in labels]
    if (
        len(names) < 2
        or labels[0].start() != 0
        or sorted(names, key=order.index) != list(order[: len(names)])
    ):
        return None
    ends = [label.start() for label in labels[1:]] + [len(text)]
    parts = {
        label["name"]: _part(text[label.end() : end], label) for label, end in zip(labels, ends, strict=True)
    }
    found = [parts[name] for name in order[: len(names)]]
    # a label without its answer: what the parts are is not known
    if not all(found):
        return None
    return [f"\\text{{{part}}}" for part in found] if whole is not None else found


def _is_label(found: re.Match[str], text: str) -> bool:
    """Letters may stand before a bare closing bracket (`a) 12`), digits may not; nothing is applied to a label (`f(a)`)."""
    if found["open"] is None and (
        found["name"].isdigit()
        or (found["opened"] is None and found.start() > 0 and text[found.start() - 1] not in " ,;}")
    ):
        return False
    return found.start() == 0 or found["opened"] is not None or text[found.start() - 1] in " ,;.&}\\"


def _part(text: str, label: re.Match[str]) -> str:
    """One part without what parts it from the next; a text macro that its label opened stays open."""
    text = without_end(text, _BETWEEN).strip()
    return f"\\text{{{text}" if label["opened"] is not None and label["closed"] is None and text else text
