"""Answers in forms that the grammar lacks: sentences, ranges in words, residue classes, capital letters, parts.

How this works: each part offers one function that returns what it found, or nothing where the text has another form;
`answers` tries them in turn. `sentence` takes a text apart into runs of words and formulas in their order, so that
neither a word nor a sign of it is lost; ranges in words are read from that.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.reading.lexer import canonical, lex
from grpo_verifiers.maths.reading.reader import read
from grpo_verifiers.maths.reading.tokens import Token, Unreadable
from grpo_verifiers.maths.reading.tree import SCALARS, Node, number, symbols
from grpo_verifiers.maths.reading.vocabulary import RELATIONS
from grpo_verifiers.maths.reading.words import SHORT_WORDS
from grpo_verifiers.text import without_end

_STOPS = frozenset((",", ".", ";", ":", "!", "?", '"', "`", "&"))
_JOINERS = frozenset(("and", "or"))
_INFINITY: Node = ("inf",)
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
MARKS = frozenset(("pmod", "bmod", "mod", "pod"))
_SIGNS = frozenset(("=", "equiv"))
_ALTERNATIVES = frozenset((",", ";", "or", "and"))
_CAPITAL_WORDS = frozenset(
    ("none", "true", "false", "zero", "even", "left", "right", "both", "never", "always", *SHORT_WORDS)
)
_LABEL_ORDERS = (("i", "ii", "iii", "iv", "v"), tuple("abcdefgh"), tuple("12345678"))


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
        elif (
            # a hyphen
            token.value == "-"
            and 0 < i < len(tokens) - 1
            and tokens[i - 1].kind == tokens[i + 1].kind == "w"
            and not token.spaced
            and not tokens[i + 1].spaced
        ) or (not formula and token.value in _STOPS):
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


def read_range(text: str, words: str) -> Node | None:
    """The interval an answer in words names, or None; `words` is its plain text."""
    if patterns.WORDY.search(words) is None:
        return None
    parts = sentence(text)
    if len(parts) == 1 and isinstance(parts[0], str):
        match = patterns.SIGNED.fullmatch(parts[0])
        if match is None:
            return None
        positive, non = match["sign"] == "positive", bool(match["non"])
        # a set with its 0 where it is called by what it is not: non-negative, non-positive
        if positive != non:
            return _above(number(0), non)
        return _below(number(0), non)
    if len(parts) == 2 and isinstance(parts[0], str) and isinstance(parts[1], Formula):
        return _compared(parts[0], parts[1])
    if len(parts) == 2 and isinstance(parts[0], Formula) and parts[1] in ("at least", "at most"):
        return _compared(parts[1], parts[0])
    # `between 2 and 9 inclusive`: without the last word nobody knows about the ends
    if len(parts) != 3 or not isinstance(parts[0], str) or not isinstance(parts[1], Formula):
        return None
    if patterns.BETWEEN_TWO.fullmatch(parts[0]) is None or parts[2] not in ("inclusive", "exclusive"):
        return None
    tree = parts[1].tree
    if tree is None or tree[0] != "list" or tree[1] != "and" or len(tree[2]) != 2 or not all(map(_is_bound, tree[2])):
        return None
    left, right = ("[", "]") if parts[2] == "inclusive" else ("(", ")")
    return ("tuple", left, right, tree[2])


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


def _compared(words: str, bound: Formula) -> Node | None:
    match = patterns.FORM_COMPARED.fullmatch(words)
    if match is None or not _is_bound(bound.tree):
        return None
    # `at least or equal to` is no English: whoever says so may mean anything
    if match["equal"] and (match["least"] or match["most"]):
        return None
    closed = bool(match["equal"] or match["least"] or match["most"])
    return _above(bound.tree, closed) if match["over"] or match["least"] else _below(bound.tree, closed)


def _is_bound(node: Node | None) -> bool:
    return node is not None and node[0] in SCALARS and not symbols(node)


def _above(bound: Node | None, closed: bool) -> Node:
    return ("tuple", "[" if closed else "(", ")", (bound, _INFINITY))


def _below(bound: Node | None, closed: bool) -> Node:
    return ("tuple", "(", "]" if closed else ")", (("neg", _INFINITY), bound))


def read_date(text: str) -> Node | None:
    """`("date", year | None, month, day)` of a day in words or as `2024-03-14`, or None."""
    found = patterns.DATE.fullmatch(text.strip(" .").lower())
    if found is None:
        return None
    day, name, year = (
        found[a] or found[b] or found[c]
        for a, b, c in (("day", "d", "last"), ("month", "m", "number"), ("year", "y", "iso"))
    )
    name = name.replace("sept", "sep") if len(name) < 5 else name
    month = int(name) if name.isdigit() else 1 + next((i for i, m in enumerate(_MONTHS) if name in (m, m[:3])), -1)
    return ("date", year and int(year), month, int(day)) if 1 <= month <= 12 and 1 <= int(day) <= 31 else None


def read_chance(text: str) -> Node | None:
    """The quotient that `1 in 36` or `3 out of 10` names, or None."""
    found = patterns.CHANCE.fullmatch(text.strip(" .").lower())
    return None if found is None else ("/", number(int(found[1])), number(int(found[2])))


# Residue classes: `4 (mod 9)`, `x ≡ 2, 5 (mod 7)`, `17 mod 5 = 2`. Read here, computed where they are
# compared. A tree is `("congruence", joiner, clauses)`, a clause `(sides, residues, modulus, after)`: what stands before
# the last sign of congruence, the residues, the modulus, and what an equals sign behind the modulus gives.


class Clause(NamedTuple):
    """One congruence."""

    sides: tuple[Node, ...]
    residues: tuple[Node, ...]
    modulus: Node
    after: Node | None


def read_residues(tokens: list[Token]) -> Node | None:
    """The residue classes a token list names, or None if it is something else."""
    clauses: list[Clause] = []
    joiner, at = "", 0
    try:
        while at < len(tokens):
            if clauses:
                if not {t.value for t in tokens[at : at + 2]} & _ALTERNATIVES:
                    return None
                while at < len(tokens) and tokens[at].value in _ALTERNATIVES:
                    joiner = tokens[at].value if tokens[at].value in ("or", "and") else joiner
                    at += 1
            mark = at
            while tokens[mark].value not in MARKS:
                mark += 1
            before = tokens[at:mark]
            bracketed = bool(before) and before[-1].value == "(" and before[-1].kind == "o"
            # `4 (mod 9)`: the bracket belongs to the modulus
            if bracketed:
                before.pop()
            modulus, at = _modulus(tokens, mark + 1, bracketed)
            sides = _split(before, _SIGNS)
            after = None
            if at < len(tokens) and tokens[at].value in _SIGNS:
                end = at + 1
                while end < len(tokens) and tokens[end].value not in _ALTERNATIVES:
                    end += 1
                after, at = read(tokens[at + 1 : end]), end
            residues = tuple(read(part) for part in _split(sides[-1], _ALTERNATIVES))
            clauses.append(Clause(tuple(read(side) for side in sides[:-1]), residues, modulus, after))
    # an index beyond the end is a clause that was cut off
    except (Unreadable, RecursionError, IndexError):
        return None
    return ("congruence", joiner or ",", tuple(tuple(clause) for clause in clauses)) if clauses else None


def _modulus(tokens: list[Token], at: int, bracketed: bool) -> tuple[Node, int]:
    opener = "(" if bracketed else tokens[at].value
    if opener not in ("{", "("):
        return read(tokens[at : at + 1]), at + 1
    start = end = at if bracketed else at + 1
    while tokens[end].value != ("}" if opener == "{" else ")"):
        end += 1
    return read(tokens[start:end]), end + 1


def _split(tokens: list[Token], marks: frozenset[str]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.value in marks and token.kind in ("o", "c", "w"):
            parts.append([])
        else:
            parts[-1].append(token)
    found = [part for part in parts if part]
    if not found:
        raise Unreadable("no residue")
    return found


def capitals_of(text: str) -> str:
    """The capitals an answer consists of, in order, or `` if it is something else or a word."""
    match = patterns.CAPITALS.fullmatch(text)
    if match is None or match[1].lower() in _CAPITAL_WORDS:
        return ""
    return match[1]


def written_capitals(tree: Node | None) -> str:
    """The capitals of a product or a list of single capitals (`T, F, T`; `A \\cdot B`) as written, or ``."""
    if tree is None:
        return ""
    names = list(_letters_in(tree))
    return "".join(names) if names and all(len(n) == 1 and n.isupper() for n in names) else ""


def repeated_capitals(tree: Node | None) -> str:
    """The capitals of a list in which one comes twice: marks or tosses, whose order counts."""
    if tree is None or tree[0] != "list":
        return ""
    written = written_capitals(tree)
    # distinct letters may be names of things, which may come in any order
    return written if len(set(written)) < len(written) else ""


def _letters_in(node: Node) -> list[str]:
    if node[0] == "s":
        return [node[1]]
    if node[0] == "*":
        return [name for part in node[1:] for name in _letters_in(part)]
    if node[0] == "list" and node[1] == ",":
        return [name for part in node[2] for name in _letters_in(part)]
    if node[0] == "tuple":
        return [name for part in node[3] for name in _letters_in(part)]
    return [""]


def split_parts(text: str) -> list[str] | None:
    """The text after each label, in order; None unless there are at least two labels, the first ones of their
    alphabet."""
    text = text.strip()
    whole = patterns.ONE_TEXT.fullmatch(text)
    text = text if whole is None else whole[1]
    first = patterns.PART_LABEL.match(text)
    if first is None:
        return None
    # the first label decides which alphabet counts: an `(i)` within part (a) is no label then
    order = next(names for names in _LABEL_ORDERS if first["name"] in names)
    labels = [m for m in patterns.PART_LABEL.finditer(text) if m["name"] in order and _is_part_label(m, text)]
    names = [label["name"] for label in labels]
    if len(names) < 2 or labels[0].start() != 0 or sorted(names, key=order.index) != list(order[: len(names)]):
        return None
    ends = [label.start() for label in labels[1:]] + [len(text)]
    parts = {label["name"]: _part(text[label.end() : end], label) for label, end in zip(labels, ends, strict=True)}
    found = [parts[name] for name in order[: len(names)]]
    # a label without its answer: what the parts are is not known
    if not all(found):
        return None
    return [f"\\text{{{part}}}" for part in found] if whole is not None else found


def _is_part_label(found: re.Match[str], text: str) -> bool:
    """Letters may stand before a bare closing bracket (`a) 12`), digits may not; nothing is applied to a label (`f(a)`)."""
    if found["open"] is None and (
        found["name"].isdigit()
        or (found["opened"] is None and found.start() > 0 and text[found.start() - 1] not in " ,;}")
    ):
        return False
    return found.start() == 0 or found["opened"] is not None or text[found.start() - 1] in " ,;.&}\\"


def _part(text: str, label: re.Match[str]) -> str:
    """One part without what parts it from the next; a text macro that its label opened stays open."""
    text = without_end(text, patterns.PARTING).strip()
    return f"\\text{{{text}" if label["opened"] is not None and label["closed"] is None and text else text
