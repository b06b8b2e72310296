"""A place in a token list, what the readers remember on the way, and how they reach each other.

The readers are one recursive descent cut by subject, from `atoms` up to `reader`: each calls what is below it by import, and what
is above it (an exponent may hold a whole list) by the `Grammar` that `reader` puts together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from grpo_verifiers.maths.reading.tree import Node


class Unreadable(ValueError):
    """Text that this reader cannot parse as mathematics; the message gives the reason."""


class TooBig(Unreadable):
    """Text over a static limit."""


class Token(NamedTuple):
    """One token; the docstring of `lexer` lists its kinds."""

    kind: str
    value: str
    spaced: bool = False


END = Token("o", "")
UNIT_STOP = frozenset(("and", "or"))
"""Words that part items rather than name units."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The readers that readers below them call; each starts at the cursor's place and leaves it behind what it read."""

    listing: Callable[[Cursor], Node]
    relation: Callable[[Cursor], Node]
    measured: Callable[[Cursor], Node]
    sets: Callable[[Cursor], Node]
    signed_power: Callable[[Cursor], Node]
    power: Callable[[Cursor], Node]
    command: Callable[[Cursor, str], Node]
    bracketed: Callable[[Cursor, str], Node]
    items: Callable[[Cursor, str], tuple[Node, ...]]
    round: Callable[[Cursor, str], Node]
    set: Callable[[Cursor], Node]
    rows: Callable[[Cursor, str], tuple[tuple[Node, ...], ...]]


class Cursor:
    """One pass over a token list. `bars` and `in_set` set what a stroke and a comma mean here, `currency` waits for its number.

    `closed` is the place behind the last fraction: a digit before it belongs to that, whatever number follows.
    """

    __slots__ = ("at", "bars", "closed", "currency", "depth", "grammar", "in_set", "tokens")

    def __init__(self, tokens: list[Token], grammar: Grammar) -> None:
        self.tokens = tokens
        self.grammar = grammar
        self.at = 0
        self.depth = 0
        self.bars = 0
        self.in_set = 0
        self.closed = 0
        self.currency: str | None = None

    def peek(self, ahead: int = 0) -> Token:
        """The token `ahead` of here, or the end."""
        try:
            return self.tokens[self.at + ahead]
        except IndexError:
            return END

    def take(self, value: str) -> bool:
        """Consume a token if it has this value."""
        if self.at < len(self.tokens) and self.tokens[self.at].value == value:
            self.at += 1
            return True
        return False

    def afresh(self, read: Callable[[Cursor], Node], in_set: int = 0) -> Node:
        """What is read within brackets: a stroke or a comma within them is theirs."""
        before = self.bars, self.in_set
        self.bars, self.in_set = 0, in_set
        node = read(self)
        self.bars, self.in_set = before
        return node

    def need(self, value: str) -> None:
        """Consume a token that must have this value.

        Raises:
            Unreadable: it has another.
        """
        if not self.take(value):
            raise Unreadable(f"`{value}` is missing")
