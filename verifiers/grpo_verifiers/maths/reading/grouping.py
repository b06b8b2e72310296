"""Brackets of every kind: tuples, sets, set builders, matrices."""

from __future__ import annotations

from grpo_verifiers.maths.reading.commands import CommandReader
from grpo_verifiers.maths.reading.cursor import END
from grpo_verifiers.maths.reading.lexer import Unreadable
from grpo_verifiers.maths.reading.tree import Node


class GroupReader(CommandReader):
    """Brackets of every kind: tuples, sets, set builders, matrices."""

    def _items(self, closer: str) -> tuple[Node, ...]:
        bars, self.bars = self.bars, 0
        in_set, self.in_set = self.in_set, 0
        node = self.listing()
        self.need(closer)
        self.bars, self.in_set = bars, in_set
        return tuple(node[2]) if node[0] == "list" else (node,)

    def _bracketed(self, value: str) -> Node:
        if value == "{":
            self.at += 1
            if self.take("}"):
                return self.atom() if self._starts_factor(self.peek()) else self._lost()
            bars, self.bars = self.bars, 0
            currency = self.currency
            node = self.listing()
            self.currency = currency or self.currency
            self.need("}")
            self.bars = bars
            return node
        if value in ("(", "["):
            self.at += 1
            return self._round(value)
        if value == "]":
            self.at += 1
            return self._round("]")
        if value == "|":
            self.at += 1
            self.bars += 1
            inner = self.sum()
            self.need("|")
            self.bars -= 1
            return ("f", "abs", (inner,))
        if value == "-":
            self.at += 1
            return ("neg", self.power())
        raise Unreadable(f"unexpected `{value}`")

    def _round(self, opener: str) -> Node:
        bars, self.bars = self.bars, 0
        in_set, self.in_set = self.in_set, 0
        currency = self.currency
        if self.peek().value in (")", "]"):
            raise Unreadable("empty brackets")
        node = self.listing()
        self.bars, self.in_set, self.currency = bars, in_set, currency
        closer = self.peek().value
        if closer not in (")", "]", "[") or (closer == "[" and opener not in "]["):
            raise Unreadable("brackets do not match")
        self.at += 1
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

    def _set(self) -> Node:
        if self.take("}"):
            return ("set", ())
        mark = self._builder_mark()
        if mark:
            return self._builder(mark)
        in_set, self.in_set = self.in_set, 1
        bars, self.bars = self.bars, 0
        node = self.listing()
        self.need("}")
        self.in_set, self.bars = in_set, bars
        return ("set", tuple(node[2]) if node[0] == "list" else (node,))

    def _builder_mark(self) -> int:
        """Where the bar of a set builder stands, counted from here; 0 if this is no set builder."""
        depth = 0
        for i in range(self.at, min(len(self.tokens), self.at + 40)):
            token = self.tokens[i]
            depth += (token.value in ("(", "{")) - (token.value in (")", "}"))
            if depth < 0:
                return 0
            if depth == 0 and token.value in ("mid", ":"):
                return i - self.at
            if (
                depth == 0
                and token.value == "|"
                and i > self.at
                and self.tokens[i - 1].value not in ("+", "-", "*", ",", "=")
            ):
                return i - self.at
        return 0

    def _builder(self, mark: int) -> Node:
        if mark > 1 and self.peek(1).value != "in":
            return self._values_for()
        if self.peek().kind != "s":
            raise Unreadable("a set builder")
        name = self.peek().value
        domain: Node | None = None
        if mark > 1:
            self.at += 1
            if not self.take("in"):
                raise Unreadable("a set builder")
            in_set, self.in_set = self.in_set, 1
            domain = self.sets()
            self.in_set = in_set
        else:
            self.at += 1
        self.at += 1
        node = self.listing()
        self.need("}")
        return ("builder", name, domain, node)

    def _values_for(self) -> Node:
        """`{2k : k in Z}`: the values of an expression."""
        in_set, self.in_set = self.in_set, 1
        value = self.sum()
        self.in_set = in_set
        if self.peek().value not in ("|", "mid", ":"):
            raise Unreadable("a set builder")
        self.at += 1
        node = self.listing()
        self.need("}")
        return ("builder", "", value, node)

    def _rows(self, closer: str) -> tuple[tuple[Node, ...], ...]:
        rows: list[tuple[Node, ...]] = []
        bars, self.bars = self.bars, 0
        in_set, self.in_set = self.in_set, 0
        cells: list[Node] = []
        while True:
            if self.take(closer):
                break
            if self.take("newline"):
                if cells:
                    rows.append(tuple(cells))
                cells = []
                continue
            if self.peek() is END:
                raise Unreadable("a matrix is never closed")
            if self.peek().value == "hline":
                self.at += 1
                continue
            if self.take("&") or self.take(","):
                continue
            if self.peek().kind == "w" and self.peek().value.lower() in (
                "if",
                "for",
                "when",
                "where",
                "otherwise",
                "else",
            ):
                word = self.peek().value.lower()
                self.at += 1
                if word in ("otherwise", "else"):
                    cells.append(("s", "otherwise"))
                continue
            cells.append(self.relation())
        if cells:
            rows.append(tuple(cells))
        self.bars, self.in_set = bars, in_set
        if not rows or sum(map(len, rows)) > 100:
            raise Unreadable("an empty or oversized matrix")
        if closer != "end:cases" and len({len(row) for row in rows}) != 1:
            raise Unreadable("a ragged matrix")
        return tuple(rows)
