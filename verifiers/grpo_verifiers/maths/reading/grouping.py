"""Brackets of every kind: tuples, sets, set builders, matrices."""

from __future__ import annotations

from grpo_verifiers.maths.reading.atoms import read_atom
from grpo_verifiers.maths.reading.cursor import END, Cursor
from grpo_verifiers.maths.reading.powers import read_power
from grpo_verifiers.maths.reading.sums import read_sum, starts_factor
from grpo_verifiers.maths.reading.tokens.token import Unreadable
from grpo_verifiers.maths.reading.tree import Node


def read_items(cursor: Cursor, closer: str) -> tuple[Node, ...]:
    """A list up to its closer, which is consumed."""
    # brackets start afresh: a stroke or a comma within them is theirs
    bars, cursor.bars = cursor.bars, 0
    in_set, cursor.in_set = cursor.in_set, 0
    node = cursor.grammar.listing(cursor)
    cursor.need(closer)
    cursor.bars, cursor.in_set = bars, in_set
    return tuple(node[2]) if node[0] == "list" else (node,)


def read_bracketed(cursor: Cursor, value: str) -> Node:
    """A group of any kind, by its opener, which is still to be read."""
    if value == "{":
        cursor.at += 1
        if cursor.take("}"):
            if not starts_factor(cursor, cursor.peek()):
                raise Unreadable("an expression is missing")
            return read_atom(cursor)
        bars, cursor.bars = cursor.bars, 0
        currency = cursor.currency
        node = cursor.grammar.listing(cursor)
        cursor.currency = currency or cursor.currency
        cursor.need("}")
        cursor.bars = bars
        return node
    if value in ("(", "["):
        cursor.at += 1
        return read_round(cursor, value)
    # `]0, 1[` is the French way to write an open interval
    if value == "]":
        cursor.at += 1
        return read_round(cursor, "]")
    if value == "|":
        cursor.at += 1
        cursor.bars += 1
        inner = read_sum(cursor)
        cursor.need("|")
        cursor.bars -= 1
        return ("f", "abs", (inner,))
    if value == "-":
        cursor.at += 1
        return ("neg", read_power(cursor))
    raise Unreadable(f"unexpected `{value}`")


def read_round(cursor: Cursor, opener: str) -> Node:
    """Round or square brackets after their opener: a group, a tuple or an interval."""
    bars, cursor.bars = cursor.bars, 0
    in_set, cursor.in_set = cursor.in_set, 0
    currency = cursor.currency
    if cursor.peek().value in (")", "]"):
        raise Unreadable("empty brackets")
    node = cursor.grammar.listing(cursor)
    cursor.bars, cursor.in_set, cursor.currency = bars, in_set, currency
    closer = cursor.peek().value
    if closer not in (")", "]", "[") or (closer == "[" and opener not in "]["):
        raise Unreadable("brackets do not match")
    cursor.at += 1
    if node[0] == "unit" and node[2] == "degree":  # an argument in degrees keeps its sign
        node = ("deg", node[1])
    if node[0] == "list":
        items = tuple(node[2])
        return ("tuple", opener, closer, items)
    if opener == "[" and closer == "]" and node[0] in ("tuple", "list"):
        return ("tuple", "[", "]", (node,))
    if (opener, closer) not in (("(", ")"), ("[", "]")):
        raise Unreadable("brackets do not match")
    return node


def read_set(cursor: Cursor) -> Node:
    """Set braces after their opener: members or a set builder."""
    if cursor.take("}"):
        return ("set", ())
    mark = _builder_mark(cursor)
    if mark:
        return _builder(cursor, mark)
    in_set, cursor.in_set = cursor.in_set, 1
    bars, cursor.bars = cursor.bars, 0
    node = cursor.grammar.listing(cursor)
    cursor.need("}")
    cursor.in_set, cursor.bars = in_set, bars
    return ("set", tuple(node[2]) if node[0] == "list" else (node,))


def _builder_mark(cursor: Cursor) -> int:
    """Where the bar of a set builder stands, counted from here; 0 if this is no set builder."""
    depth = 0
    # far enough for what a builder says of its name, and no scan to the end from every brace
    for i in range(cursor.at, min(len(cursor.tokens), cursor.at + 40)):
        token = cursor.tokens[i]
        depth += (token.value in ("(", "{")) - (token.value in (")", "}"))
        if depth < 0:
            return 0
        if depth == 0 and token.value in ("mid", ":"):
            return i - cursor.at
        if (
            depth == 0
            and token.value == "|"
            and i > cursor.at
            and cursor.tokens[i - 1].value not in ("+", "-", "*", ",", "=")
        ):
            return i - cursor.at
    return 0


def _builder(cursor: Cursor, mark: int) -> Node:
    if mark > 1 and cursor.peek(1).value != "in":
        return _values_for(cursor)
    if cursor.peek().kind != "s":
        raise Unreadable("a set builder")
    name = cursor.peek().value
    domain: Node | None = None
    if mark > 1:
        cursor.at += 1
        if not cursor.take("in"):
            raise Unreadable("a set builder")
        in_set, cursor.in_set = cursor.in_set, 1
        domain = cursor.grammar.sets(cursor)
        cursor.in_set = in_set
    else:
        cursor.at += 1
    cursor.at += 1
    node = cursor.grammar.listing(cursor)
    cursor.need("}")
    return ("builder", name, domain, node)


def _values_for(cursor: Cursor) -> Node:
    """`{2k : k in Z}`: the values of an expression."""
    in_set, cursor.in_set = cursor.in_set, 1
    value = read_sum(cursor)
    cursor.in_set = in_set
    if cursor.peek().value not in ("|", "mid", ":"):
        raise Unreadable("a set builder")
    cursor.at += 1
    node = cursor.grammar.listing(cursor)
    cursor.need("}")
    return ("builder", "", value, node)


def read_rows(cursor: Cursor, closer: str) -> tuple[tuple[Node, ...], ...]:
    """Rows of a matrix or of cases, up to the closer, which is consumed."""
    rows: list[tuple[Node, ...]] = []
    bars, cursor.bars = cursor.bars, 0
    in_set, cursor.in_set = cursor.in_set, 0
    cells: list[Node] = []
    while True:
        if cursor.take(closer):
            break
        if cursor.take("newline"):
            if cells:
                rows.append(tuple(cells))
            cells = []
            continue
        if cursor.peek() is END:
            raise Unreadable("a matrix is never closed")
        if cursor.peek().value == "hline":
            cursor.at += 1
            continue
        if cursor.take("&") or cursor.take(","):
            continue
        if cursor.peek().kind == "w" and cursor.peek().value.lower() in (
            "if",
            "for",
            "when",
            "where",
            "otherwise",
            "else",
        ):
            word = cursor.peek().value.lower()
            cursor.at += 1
            if word in ("otherwise", "else"):
                cells.append(("s", "otherwise"))
            continue
        cells.append(cursor.grammar.relation(cursor))
    if cells:
        rows.append(tuple(cells))
    cursor.bars, cursor.in_set = bars, in_set
    # cells are compared one by one: this bounds what an answer can cost
    if not rows or sum(map(len, rows)) > 100:
        raise Unreadable("an empty or oversized matrix")
    if closer != "end:cases" and len({len(row) for row in rows}) != 1:
        raise Unreadable("a ragged matrix")
    return tuple(rows)
