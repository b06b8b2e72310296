"""Texts that are not what was drawn: bytes that spell nothing became U+FFFD, which is tokenised as itself."""

from __future__ import annotations

from collections.abc import Sequence

UNSPELT = "\ufffd"
"""What decoders put where tokens spell no text."""


def count_unspelt(items: Sequence[Sequence[str]]) -> int:
    """How many of these pairs, or answers alone, hold such a text."""
    return sum(any(UNSPELT in text for text in texts) for texts in items)


def unspelt_text(broken: int, total: int, what: str = "pairs") -> str:
    """The sentence about `broken` of `total`; both making pairs and learning from a file say it."""
    return (
        f"{broken:,} of {total:,} {what} hold U+FFFD, as bytes do that spell no text: what is learned is not what"
        " was drawn"
    )
