"""The world of a test program around a call: its patches of the library, its streams, its scratch files."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from .. import frames
from ..scratch import read_files, write_files
from .describe import bases
from .ends import PeerEnd
from .waiting import WAITED


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
        # for this call only: the next one may be made outside of the patch
        kept.append((module, name, getattr(module, name)))
        setattr(module, name, peer.decode(value))
    if "environ" in world:
        os.environ.clear()
        os.environ.update(world["environ"])
    before = None
    if "random" in world:
        import random

        version, state, gauss = world["random"]
        # a test that seeds and then calls counts on the numbers that come next
        random.setstate((version, tuple(state), gauss))
    if "files" in world:
        write_files(world["files"])
        # what is there before, so that only what the solution has changed goes back
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

    def write(self, data: Any) -> int:
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
        warnings.warn = self._warn
        builtins.input = lambda prompt="", /: self.peer.ask(["input", str(prompt)])

    def _warn(
        self, message: Warning | str, category: type[Warning] | None = None, *_: object, **__: object
    ) -> None:
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        self.peer.ask(["warn", bases(kind), str(message)])

    def send(self) -> None:
        """Say what has been printed since the last message, and how long the solution has waited."""
        if WAITED.seconds:
            frames.send(self.peer.fd, ["slept", WAITED.take()])
        for name, stream in self.streams.items():
            with contextlib.suppress(ValueError, OSError):
                stream.flush()
            raw = self.raw[name]
            if raw.data:
                # a solution that prints without end fills no message
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
