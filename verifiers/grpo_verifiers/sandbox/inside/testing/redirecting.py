"""What the test prints inside a context of the solution that captures output: it goes there, and no longer than the context lasts."""

from __future__ import annotations

import io
import sys
from typing import Any

STREAMS = ("stdout", "stderr")
MOST = 1 << 20  # characters of a statement, as with what a solution prints


class Forwarded(io.TextIOBase):
    """A stream whose text is for the solution's own."""

    def __init__(self, name: str) -> None:
        self.name, self.parts = name, list[str]()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str, /) -> int:
        """Keep it until the next question."""
        self.parts.append(str(text))
        return len(text)


class Redirects:
    """The streams that contexts of the solution have replaced, by the number of the context's object."""

    def __init__(self) -> None:
        self.standing: dict[Any, list[tuple[Forwarded, Any]]] = {}

    def begin(self, number: object, names: object) -> None:
        """A context that has been entered has replaced these streams on its side."""
        if type(names) is not list or number in self.standing:
            return
        self.standing[number] = []
        for name in STREAMS:
            if name in names:
                stream = Forwarded(name)
                self.standing[number].append((stream, getattr(sys, name)))
                setattr(sys, name, stream)

    def end(self, number: object) -> None:
        """The context has been left."""
        for stream, before in self.standing.pop(number, ()):
            # a test that has replaced it meanwhile puts it back itself
            if getattr(sys, stream.name) is stream:
                setattr(sys, stream.name, before)

    def take(self) -> list[tuple[str, str]]:
        """What has been printed since, by stream."""
        said = [(s.name, "".join(s.parts)[:MOST]) for pairs in self.standing.values() for s, _ in pairs]
        for pairs in self.standing.values():
            for stream, _ in pairs:
                stream.parts.clear()
        return [(name, text) for name, text in said if text]
