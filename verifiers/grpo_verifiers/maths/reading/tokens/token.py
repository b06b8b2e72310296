"""One token of an answer, and the two ways in which a text is none that can be read."""

from __future__ import annotations

from typing import NamedTuple


class Unreadable(ValueError):
    """Text that is no mathematics this reader knows; the message says why."""


class TooBig(Unreadable):
    """Text over a static limit."""


class Token(NamedTuple):
    """One token; the docstring of `lexer` says what its kinds are."""

    kind: str
    value: str
    spaced: bool = False
