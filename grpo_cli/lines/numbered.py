"""Lines of a stream as bytes.

A line ends at its newline alone: `splitlines` would also cut at signs that JSON leaves inside a string.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

BOM = b"\xef\xbb\xbf"


class BrokenText(bytes):
    """Why there is no line, in place of the line."""


class NumberedLine(NamedTuple):
    """One line with its number, from 1, and as it stands; `text` is None where it was too long to hold, and `BrokenText`
    where a reader could make no line."""

    number: int
    text: bytes | None


def numbered(stream: IO[bytes], most_bytes: int | None = None) -> Iterator[NumberedLine]:
    """Every line, the last also without its newline; the mark of UTF-8 before the first is left out.

    A line of more than `most_bytes` is returned as None and never held whole. Nothing is read beyond the line given.
    """
    number = 0
    while text := stream.readline() if most_bytes is None else stream.readline(most_bytes + 1):
        number += 1
        if most_bytes is not None and len(text) > most_bytes and not text.endswith(b"\n"):
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
            yield NumberedLine(number, None)
            continue
        yield NumberedLine(number, text.removeprefix(BOM) if number == 1 else text)


def whole(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines that end in a newline, with it; a torn last one is left."""
    for line in stream:
        if not line.endswith(b"\n"):
            return
        yield line
