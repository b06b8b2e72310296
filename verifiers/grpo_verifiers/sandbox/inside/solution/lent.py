"""What the test program lends to the solution: its functions, iterators and objects, its patches, its streams."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

from .. import frames
from ..scratch import read_files, write_files
from ..wire import Value
from .ends import PeerEnd


class FromTest:
    """Something of the test program, by its number there: a function, an iterator, a coroutine or an object."""

    def __init__(self, peer: PeerEnd, tag: str, number: int) -> None:
        for name, value in (("_peer", peer), ("_tag", tag), ("_number", number)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if self._tag not in ("ob", "cb") or name.startswith("_"):
            raise AttributeError(name)
        return self._peer.ask(["get", self._number, name])

    def __setattr__(self, name: str, value: object) -> None:
        if self._tag != "ob" or name.startswith("_"):
            raise AttributeError(name)
        self._peer.ask(["set", self._number, name, self._peer.encode(value)])

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._peer.ask(
            ["call", self._number, [self._peer.encode(a) for a in args], self._peer.encode(kwargs)]
        )

    def __iter__(self) -> FromTest:
        if self._tag != "it":
            raise TypeError("not iterable")
        return self

    def __next__(self) -> Any:
        if self._tag != "it":
            raise TypeError("not an iterator")
        return self._peer.ask(["next", self._number])

    def __await__(self) -> Any:
        if self._tag != "co":
            raise TypeError("not awaitable")
        return self._peer.ask(["run", self._number])
        yield


def test_object(peer: PeerEnd, number: int, name: str, dunders: list[str]) -> FromTest:
    """An object of a class of the test, with those special methods that the class has there."""

    def asking(dunder: str) -> Any:
        return lambda self, *args: self._peer.ask(
            ["special", self._number, dunder, [self._peer.encode(a) for a in args]]
        )

    kind: Any = type(name, (FromTest,), {d: asking(d) for d in dunders})
    made: FromTest = kind(peer, "ob", number)
    return made


def made_class(peer: PeerEnd, name: str, parents: list[Any], members: list[list[Any]]) -> type:
    """A class that the test program derives from the solution's, with its methods there."""
    body: dict[str, Any] = {"__module__": "solution"}
    for key, how, value in members:
        made = peer.decode(value)
        if how in ("function", "class", "property"):
            made = _method(made)
        body[key] = {"class": classmethod, "static": staticmethod, "property": property}.get(
            how, lambda m: m
        )(made)
    return types.new_class(name, tuple(peer.decode(p) for p in parents), {}, lambda space: space.update(body))


def _method(lent: Value) -> Any:
    def method(*args: Value, **kwargs: Value) -> Any:
        return lent(*args, **kwargs)

    return method


@contextlib.contextmanager
def applied(peer: PeerEnd, world: dict[str, Any] | None) -> Iterator[None]:
    """The test program's patches of the library, and its files, for the time of a call."""
    if not world:
        yield
        return
    kept = []
    for full, value in world.get("patches", {}).items():
        module_name, _, name = full.rpartition(".")
        module = __import__(module_name, fromlist=["x"])
        kept.append((module, name, getattr(module, name)))
        setattr(module, name, peer.decode(value))
    if "environ" in world:
        os.environ.clear()
        os.environ.update(world["environ"])
    before = None
    if "random" in world:
        import random

        version, state, gauss = world["random"]
        random.setstate((version, tuple(state), gauss))
    if "files" in world:
        write_files(world["files"])
        before = read_files()
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
        if before is not None:
            after = read_files()
            changed = {p: after.get(p) for p in after.keys() | before.keys() if after.get(p) != before.get(p)}
            if changed:
                with peer.lock:
                    frames.send(peer.fd, ["files", changed])


class Printed(io.RawIOBase):
    """Collects what is written."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Value) -> int:
        """Keep it until the next message."""
        self.data += data
        return len(data)


class Console:
    """The streams of a solution under test: what it prints is shown to the test program, what it reads comes from there."""

    MOST = 1 << 20

    def __init__(self, peer: PeerEnd) -> None:
        self.peer = peer
        self.raw = {"stdout": Printed(), "stderr": Printed()}
        self.streams: dict[str, Any] = {}

    def take_over(self) -> None:
        """Replace the standard streams and `input`."""
        for name, raw in self.raw.items():
            stream = io.TextIOWrapper(
                io.BufferedWriter(raw), "utf-8", "surrogatepass", "\n", write_through=True
            )
            self.streams[name] = stream
            setattr(sys, name, stream)
        sys.stdin = Typed(self.peer)
        builtins.input = lambda prompt="", /: self.peer.ask(["input", str(prompt)])

    def send(self) -> None:
        """Say what has been printed since the last message."""
        for name, stream in self.streams.items():
            with contextlib.suppress(ValueError, OSError):
                stream.flush()
            raw = self.raw[name]
            if raw.data:
                text = bytes(raw.data[: self.MOST]).decode("utf-8", "replace")
                raw.data.clear()
                frames.send(self.peer.fd, ["out", name, text])


class Typed(io.TextIOBase):
    """Standard input, read from the test program's."""

    def __init__(self, peer: PeerEnd) -> None:
        self._peer = peer

    def readable(self) -> bool:
        """Always."""
        return True

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """One line."""
        return str(self._peer.ask(["stdin", "readline"]))

    def read(self, size: int | None = -1, /) -> str:
        """All that is left."""
        return str(self._peer.ask(["stdin", "read"]))
