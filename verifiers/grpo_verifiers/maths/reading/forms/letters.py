"""Sequences of capital letters: marks of a test, tosses of a coin, an order of people. They do not commute."""

from __future__ import annotations

import re

from grpo_verifiers.maths.reading.tree import Node
from grpo_verifiers.maths.reading.words import SHORT_WORDS

_CAPITALS = re.compile(
    r"(?:\\(?:text|textbf|textit|mathrm|mathbf|mathit|mbox|operatorname|texttt|vec|overrightarrow)\s*\{\s*)?([A-Z]{2,200})\s*\}?"
)
_WORDS = frozenset(
    ("none", "true", "false", "zero", "even", "left", "right", "both", "never", "always", *SHORT_WORDS)
)


def capitals_of(text: str) -> str:
    """The capitals an answer consists of, in order, or `` if it is something else or a word."""
    match = _CAPITALS.fullmatch(text)
    if match is None or match[1].lower() in _WORDS:
        return ""
    return match[1]


def written_capitals(tree: Node | None) -> str:
    """The capitals of a product or a list of single capitals (`T, F, T`; `A \\cdot B`) as written, or ``."""
    if tree is None:
        return ""
    names = list(_names(tree))
    return "".join(names) if names and all(len(n) == 1 and n.isupper() for n in names) else ""


def repeated_capitals(tree: Node | None) -> str:
    """The capitals of a list in which one comes twice: marks or tosses, whose order counts."""
    if tree is None or tree[0] != "list":
        return ""
    written = written_capitals(tree)
    # distinct letters may be names of things, which may come in any order
    return written if len(set(written)) < len(written) else ""


def _names(node: Node) -> list[str]:
    if node[0] == "s":
        return [node[1]]
    if node[0] == "*":
        return [name for part in node[1:] for name in _names(part)]
    if node[0] == "list" and node[1] == ",":
        return [name for part in node[2] for name in _names(part)]
    if node[0] == "tuple":
        return [name for part in node[3] for name in _names(part)]
    return [""]
