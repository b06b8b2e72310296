r"""Tokens to a tree, by recursive descent. Nothing is evaluated; what would have to be (sums, integrals, limits) is refused.

Loosest to tightest: list separators, relations, unions, `:`, sums, products (written or implied), powers and marks.
"""

from __future__ import annotations

import re

from grpo_verifiers.maths.reading.cursor import END, UNIT_STOP
from grpo_verifiers.maths.reading.grouping import GroupReader
from grpo_verifiers.maths.reading.lexer import Token, Unreadable
from grpo_verifiers.maths.reading.tree import SCALARS, WHOLE, Node, contains, rename, replaced, symbols
from grpo_verifiers.maths.reading.vocabulary import CLOSERS, CURRENCIES, REFUSED, RELATIONS
from grpo_verifiers.maths.reading.words import HEDGES

_CHOOSING = HEDGES | {"one", "any", "some"}


class Reader(GroupReader):
    """The whole grammar."""

    def answer(self) -> Node:
        """The whole token list as one node.

        Raises:
            Unreadable: it is not one.
        """
        node = self.listing()
        if self.at < len(self.tokens):
            raise Unreadable(f"left over: {self.peek().value[:20]}")
        return node

    def _separator(self) -> str:
        """Consume list separators; what joined: `` (nothing), `,`, `and` or `or`."""
        joined = ""
        while True:
            token = self.peek()
            value = token.value
            if token.kind == "o" and value in (",", ";", "&"):
                joined = joined or ","
            elif value in ("and", "or") and token.kind in ("w", "c"):
                joined = value
            elif value == "newline":
                joined = joined or ","
            elif value in ("beginaligned", "endaligned"):
                joined = joined or " "
            else:
                return joined
            self.at += 1

    def listing(self) -> Node:
        """Items parted by separators; a single item is itself."""
        self._separator()
        if self.peek().value in ("either", "both") and self.peek().kind == "w":
            self.at += 1
        items = [self.relation()]
        joiner = ","
        while True:
            self._skip_qualifier()
            joined = self._separator()
            if not joined:
                break
            if joined in ("or", "and"):
                joiner = joined if joiner in (",", joined) else "or"
            token = self.peek()
            if token is END and joined in ("or", "and"):
                raise Unreadable(f"nothing after `{joined}`")
            if token is END or (token.value in CLOSERS and not (token.value == "|" and not self.bars)):
                break
            items.append(self.relation())
        items = _without_ranges(items)
        return items[0] if len(items) == 1 else ("list", joiner, tuple(items))

    def _at_qualifier(self) -> bool:
        word = self.peek().value
        return word == "forall" or (word == "for" and self.peek(1).value in ("all", "every", "any", "each"))

    def _skip_qualifier(self) -> None:
        """`for all x in R` after an item says nothing about its value."""
        if not self._at_qualifier():
            return
        depth = 0
        while self.peek() is not END:
            token = self.peek()
            depth += (token.value in ("(", "{", "[")) - (token.value in (")", "}", "]"))
            if depth < 0 or token.value == "newline" or (depth == 0 and token.value in ("and", "or")):
                return
            self.at += 1

    def relation(self) -> Node:
        """An item: an expression, a chain of relations, with its unit."""
        while self.peek().value in ("=", "approx", "therefore"):
            self.at += 1
        self._skip_label()
        if self.peek().value == "&":
            self.at += 1
        first = self._measured()
        links: list[tuple[str, Node]] = []
        while True:
            self._join_rows()
            token = self.peek()
            op = RELATIONS.get(token.value)
            if op is None or token.kind == "s" or (token.kind == "w"):
                break
            self.at += 1
            if op in ("subset", "propto"):
                raise Unreadable(f"a relation `{op}`")
            while self.peek().value in ("&", "=", "approx"):
                self.at += 1
            links.append((op, self._measured()))
        return ("rel", first, tuple(links)) if links else first

    def _join_rows(self) -> None:
        """In aligned rows a relation that starts a row goes on from the row before."""
        ahead = 0
        while self.peek(ahead).value in ("&", "newline"):
            ahead += 1
        if ahead and self.peek(ahead).value in RELATIONS and self.peek(ahead).kind in ("o", "c"):
            self.at += ahead

    def _skip_label(self) -> None:
        """`Area = 5` and `Answer: 5`: words before the sign name the value and go."""
        first = self.peek()
        if (
            first.kind == "n"
            or first.value in CURRENCIES
            or (first.value in ("-", "{") and first.kind == "o")
        ):
            return
        depth, is_words, is_operation = 0, first.kind == "w", False
        for i in range(self.at, min(len(self.tokens), self.at + 40)):
            token = self.tokens[i]
            value = token.value
            depth += (value in ("(", "{", "[")) - (value in (")", "}", "]"))
            if depth < 0 or (
                depth == 0
                and (
                    value in (",", ";", "approx", "le", "ge", "<", ">", "in", "or", "and")
                    or (token.kind == "o" and value == "&")
                )
            ):
                return
            if depth == 0 and value in ("=", ":") and token.kind == "o":
                is_plain = is_words and not any(
                    t.value.lower() in _CHOOSING for t in self.tokens[self.at : i]
                )
                if (is_plain and i < self.at + 14) or (is_operation and value == "="):
                    self.at = i + 1
                return
            is_operation = is_operation or (token.kind == "c" and value in REFUSED and value != "neg")
            is_words = is_words and (
                token.kind in ("w", "s")
                or value in ("(", ")", "{", "}", "^", "_", "'")
                or (token.kind == "n" and self.tokens[i - 1].value in ("_", "{", "^", "("))
            )

    def _measured(self) -> Node:
        """An expression with a currency before it or a unit after it."""
        self.currency = None
        node = self.sets()
        token = self.peek()
        if (
            token.kind == "u"
            or (token.kind == "w" and token.value not in UNIT_STOP and not self._at_qualifier())
            or self._at_rate()
        ):
            node = self._unit(node)
        elif token.kind == "c" and token.value in CURRENCIES:
            self.at += 1
            self.currency = CURRENCIES[token.value]
        if self.currency:
            if node[0] == "unit":
                node = (
                    node[1]
                    if node[2] in ("", self.currency)
                    else ("unit", node[1], f"{self.currency} {node[2]}")
                )
            node = node if node[0] == "unit" else ("unit", node, self.currency)
            self.currency = None
        if node[0] == "neg" and node[1][0] == "pct":
            node = ("pct", ("neg", node[1][1]))
        if node[0] == "deg":
            node = ("unit", node[1], "degree")
        elif node[0] == "neg" and node[1][0] == "deg":
            node = ("unit", ("neg", node[1][1]), "degree")
        return node

    def sets(self) -> Node:
        """Expressions joined by union, intersection or difference."""
        left = self.ratio()
        while _joins_sets(self.peek()) or self._is_plain_union():
            op = "cup" if self.peek().value == "U" else self.peek().value
            self.at += 1
            right = self.ratio()
            if op == "over":
                left = ("/", left, right)
            elif op == "choose":
                left = ("binom", left, right)
            else:
                left = ("minus" if op == "setminus" else op, left, right)
        return left

    def ratio(self) -> Node:
        """`3:4`, or a time of day."""
        start = self.at
        first = self.sum()
        if self.in_set or not (
            self.peek().value == ":" or (self.peek().value == "to" and self.peek().kind == "w")
        ):
            return first
        items = [first]
        while self.take(":") or self.take("to"):
            items.append(self.sum())
        texts = [t.value for t in self.tokens[start : self.at]]
        if re.fullmatch(r"\d{1,2}:[0-5]\d(:[0-5]\d)?", "".join(texts)):
            return ("clock", tuple(int(t) for t in texts[::2]))
        return ("ratio", tuple(items))


def _joins_sets(token: Token) -> bool:
    return token.value in ("cup", "cap", "setminus", "over", "choose") and token.kind != "w"


def _without_ranges(items: list[Node]) -> list[Node]:
    """`x = k pi, k in Z` without its last part: the range of a whole number that occurs before."""
    if len(items) < 2:
        return items
    if _excludes(items):
        name = items[0][1]
        return [items[0], *(("rel", name, (("!=", item),)) for item in items[1:])]
    last = items[-1]
    is_range = last[0] == "rel" and len(last[2]) == 1 and last[2][0] == ("in", ("all", "Z"))
    if not is_range or last[1][0] not in ("s", "c"):
        return items
    if last[1] == ("c", "i"):
        items = [replaced(item, ("c", "i"), ("s", "i")) for item in items]
    name = items[-1][1][1]
    if all(name in symbols(item) for item in items[:-1]):
        return [rename(item, {name: WHOLE}) for item in items[:-1]]
    return items


def _excludes(items: list[Node]) -> bool:
    """`x \\ne 0, 1`: the sign counts for every value."""
    first = items[0]
    return (
        first[0] == "rel"
        and first[1][0] == "s"
        and len(first[2]) == 1
        and first[2][0][0] == "!="
        and all(item[0] in SCALARS for item in items[1:])
    )


def read(tokens: list[Token]) -> Node:
    """The tree of a token list.

    Raises:
        Unreadable: it is not mathematics this reader knows.
    """
    if not tokens:
        raise Unreadable("nothing to read")
    node = Reader(list(tokens)).answer()
    if contains(node, {"dots"}) and node[0] not in ("list", "set", "tuple"):
        raise Unreadable("an ellipsis in a formula")
    return node
