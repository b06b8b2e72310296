"""Ranges in words: `at least 7`, `all real numbers greater than 3`, `between 2 and 9 inclusive`, `non-positive`."""

from __future__ import annotations

import re

from grpo_verifiers.maths.reading.forms.prose import Formula, sentence
from grpo_verifiers.maths.reading.reader import read
from grpo_verifiers.maths.reading.tokens.token import Token, Unreadable
from grpo_verifiers.maths.reading.tree import SCALARS, Node, number, symbols
from grpo_verifiers.maths.reading.vocabulary import RELATIONS

_INFINITY: Node = ("inf",)
_LEAD = r"(?:(?:all|any|every|the)\s+)?(?:real\s+)?(?:numbers?\s+|values?\s+)?(?:that\s+are\s+|which\s+are\s+)?(?:strictly\s+)?"
_COMPARED = re.compile(
    _LEAD
    + r"(?:(?P<over>(?:greater|more|larger|bigger|higher) than|above|exceeding)|(?P<under>(?:less|smaller|fewer|lower) than|below)"
    r"|(?P<least>at least|no less than|not less than|no fewer than|no smaller than)"
    r"|(?P<most>at most|no more than|not more than|no greater than|not greater than))(?P<equal> or equal to)?"
)
_SIGNED = re.compile(r"(?:(?:strictly|always)\s+)?(?P<non>non\s*)?(?P<sign>positive|negative)")
_WORDY = re.compile(
    r"\b(?:than|least|most|above|below|exceeding|between|positive|negative|nonpositive|nonnegative)\b",
    re.I,
)
_BETWEEN = re.compile(_LEAD + r"between")


def read_range(text: str, words: str) -> Node | None:
    """The interval an answer in words names, or None; `words` is its plain text."""
    if _WORDY.search(words) is None:
        return None
    parts = sentence(text)
    if len(parts) == 1 and isinstance(parts[0], str):
        return _signed(parts[0])
    if len(parts) == 2 and isinstance(parts[0], str) and isinstance(parts[1], Formula):
        return _compared(parts[0], parts[1])
    if len(parts) == 2 and isinstance(parts[0], Formula) and parts[1] in ("at least", "at most"):
        return _compared(parts[1], parts[0])
    return _between(parts)


def read_half(tokens: list[Token]) -> Node | None:
    """The half line that a comparison without its left side names (`> 12`), or None where there is none.

    Raises:
        Unreadable: what is compared with is no number.
    """
    op = RELATIONS.get(tokens[0].value, "") if tokens and tokens[0].kind in ("o", "c") else ""
    if op not in ("<", ">", "<=", ">="):
        return None
    bound = read(tokens[1:])
    # `> x` is half a sentence
    if not _is_bound(bound):
        raise Unreadable("a comparison without its left side")
    return _above(bound, op == ">=") if op[0] == ">" else _below(bound, op == "<=")


def _signed(words: str) -> Node | None:
    match = _SIGNED.fullmatch(words)
    if match is None:
        return None
    positive, non = match["sign"] == "positive", bool(match["non"])
    # a set with its 0 where it is called by what it is not: non-negative, non-positive
    if positive != non:
        return _above(number(0), non)
    return _below(number(0), non)


def _compared(words: str, bound: Formula) -> Node | None:
    match = _COMPARED.fullmatch(words)
    if match is None or not _is_bound(bound.tree):
        return None
    # `at least or equal to` is no English: whoever says so may mean anything
    if match["equal"] and (match["least"] or match["most"]):
        return None
    closed = bool(match["equal"] or match["least"] or match["most"])
    return _above(bound.tree, closed) if match["over"] or match["least"] else _below(bound.tree, closed)


def _between(parts: tuple[object, ...]) -> Node | None:
    """`between 2 and 9 inclusive`: without the last word nobody knows about the ends."""
    if len(parts) != 3 or not isinstance(parts[0], str) or not isinstance(parts[1], Formula):
        return None
    if _BETWEEN.fullmatch(parts[0]) is None or parts[2] not in ("inclusive", "exclusive"):
        return None
    tree = parts[1].tree
    if (
        tree is None
        or tree[0] != "list"
        or tree[1] != "and"
        or len(tree[2]) != 2
        or not all(map(_is_bound, tree[2]))
    ):
        return None
    left, right = ("[", "]") if parts[2] == "inclusive" else ("(", ")")
    return ("tuple", left, right, tree[2])


def _is_bound(node: Node | None) -> bool:
    return node is not None and node[0] in SCALARS and not symbols(node)


def _above(bound: Node | None, closed: bool) -> Node:
    return ("tuple", "[" if closed else "(", ")", (bound, _INFINITY))


def _below(bound: Node | None, closed: bool) -> Node:
    return ("tuple", "(", "]" if closed else ")", (("neg", _INFINITY), bound))
