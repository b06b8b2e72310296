"""A place in a token list, and what the readers built on it remember.

The readers are one recursive descent, cut by subject: each class adds its part of the grammar to the one below and calls the
parts above through the methods declared here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from grpo_verifiers.maths.reading.lexer import Token, Unreadable
from grpo_verifiers.maths.reading.tree import Node

END = Token("o", "")
UNIT_STOP = frozenset(("and", "or"))
"""Words that part items rather than name units."""


class Cursor(ABC):
    """One pass over a token list."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0
        self.in_set = 0
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

    def need(self, value: str) -> None:
        """Consume a token that must have this value.

        Raises:
            Unreadable: it has another.
        """
        if not self.take(value):
            raise Unreadable(f"`{value}` is missing")

    @abstractmethod
    def listing(self) -> Node:
        """Items parted by separators; a single item is itself."""

    @abstractmethod
    def relation(self) -> Node:
        """An expression or a chain of relations, with its unit."""

    @abstractmethod
    def sum(self) -> Node:
        """An expression."""

    @abstractmethod
    def power(self) -> Node:
        """A factor with its powers and marks."""

    @abstractmethod
    def signed_power(self) -> Node:
        """The same after signs."""

    @abstractmethod
    def atom(self) -> Node:
        """The smallest unit of an expression."""

    @abstractmethod
    def sets(self) -> Node:
        """Expressions joined by unions and the like."""

    @abstractmethod
    def _measured(self) -> Node:
        """An expression with its unit."""

    @abstractmethod
    def _command(self, name: str) -> Node:
        """A LaTeX command and its arguments."""

    @abstractmethod
    def _bracketed(self, value: str) -> Node:
        """A group of any kind."""

    @abstractmethod
    def _round(self, opener: str) -> Node:
        """Round or square brackets after their opener."""

    @abstractmethod
    def _set(self) -> Node:
        """Set braces after their opener."""

    @abstractmethod
    def _items(self, closer: str) -> tuple[Node, ...]:
        """A list up to its closer."""

    @abstractmethod
    def _rows(self, closer: str) -> tuple[tuple[Node, ...], ...]:
        """Rows of a matrix."""

    @abstractmethod
    def _starts_factor(self, token: Token) -> bool:
        """Whether a token can follow as an implied factor."""
