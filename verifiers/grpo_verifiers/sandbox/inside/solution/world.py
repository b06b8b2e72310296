"""The world of a test program around a call: its patches of the library, its streams, its scratch files."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

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
    patches = [_Patch(full, peer.decode(v)) for full, v in world.get("patches", {}).items()]
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
        had = read_files()
        # an open file of the solution goes on where it was
        write_files({p: text for p, text in world["files"].items() if had.get(p) != text})
        # what is there before, so that only what the solution has changed goes back
        before = read_files()
    try:
        yield
    finally:
        # for this call only: the next one may be made outside of the patch
        for patch in patches:
            patch.undo()
        if before is not None:
            after = read_files()
            changed = {p: after.get(p) for p in after.keys() | before.keys() if after.get(p) != before.get(p)}
            if changed:
                peer.exchange.send(["files", changed])


class _Patch:
    """A name of the library as the test program has patched it; of calls that overlap, the last one's."""

    standing: ClassVar[dict[tuple[str, str], list[Any]]] = {}
    """By module and name, what was there and the patches of the calls that go on."""

    def __init__(self, full: str, value: object) -> None:
        module, _, name = full.rpartition(".")
        self.module, self.name, self.value = __import__(module, fromlist=["x"]), name, value
        self.values = self.standing.setdefault((module, name), [])
        if not self.values:
            self.values.append(getattr(self.module, name))
        self.values.append(self)
        setattr(self.module, name, value)

    def undo(self) -> None:
        """Take it away: what stands now is what the call before set, or what was there."""
        self.values.remove(self)
        last = self.values[-1]
        if len(self.values) == 1:
            self.values.clear()
        setattr(self.module, self.name, last.value if isinstance(last, _Patch) else last)


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
            stream = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "surrogatepass", "\n", write_through=True)
            self.streams[name] = stream
            setattr(sys, name, stream)
        sys.stdin = Typed(self.peer)
        warnings.warn = self._warn
        builtins.input = lambda prompt="", /: self.peer.ask(["input", str(prompt)])

    def _warn(self, message: Warning | str, category: type[Warning] | None = None, *_: object, **__: object) -> None:
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        self.peer.ask(["warn", bases(kind), str(message)])

    def replaced(self) -> set[str]:
        """The streams that the solution has put others in the place of."""
        return {name for name, stream in self.streams.items() if getattr(sys, name, None) is not stream}

    def send(self) -> None:
        """Say what has been printed since the last message, and how long the solution has waited."""
        if WAITED.seconds:
            self.peer.exchange.send(["slept", WAITED.take()])
        for name, stream in self.streams.items():
            with contextlib.suppress(ValueError, OSError):
                stream.flush()
            raw = self.raw[name]
            if raw.data:
                # a solution that prints without end fills no message
                text = bytes(raw.data[: self.MOST]).decode("utf-8", "replace")
                raw.data.clear()
                self.peer.exchange.send(["out", name, text])


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
