"""Framed messages over a stream socket, with descriptors where needed: a length of four bytes, then as many bytes.

How this works: workers block in `receive` and answer with `send`; the host reads through a `Channel`, which waits no
longer than its limit. The rest are the contents of a pool's messages: the limits of an item, and its result (`Done`,
`Raised`, `Killed`). Only the host ever pickles: a process that has met hostile text answers in JSON, so its replies
cannot run code here.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.text import printable
from grpo_verifiers.verifier import Unavailable

_HEADER = struct.Struct("!I")
_MOST_FILES = 8
LARGEST = 64 * 1024 * 1024
"""Bytes of one message; a longer announcement counts as a broken peer."""
LOOK_S = 0.1


class PeerGone(OSError):
    """The peer is gone, or announced a message over the cap."""


class PeerSilent(OSError):
    """No message within the time allowed."""


def send(sock: socket.socket, payload: bytes, files: Sequence[int] = ()) -> None:
    """Send one whole message with open files; raises OSError where the peer is gone."""
    data = _HEADER.pack(len(payload)) + payload
    sock.sendall(data[socket.send_fds(sock, [data], files) :] if files else data)


def receive(sock: socket.socket, start: bytes = b"") -> bytes | None:
    """Block for one message, of which `start` was read already; None at the end of the stream."""
    data, size = bytearray(start), _HEADER.size
    while True:
        if len(data) == size == _HEADER.size:  # nothing of the message itself was read yet
            size += _HEADER.unpack(data)[0]
        if len(data) == size:
            return bytes(data[_HEADER.size :])
        part = sock.recv(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part


def receive_files(sock: socket.socket) -> tuple[bytes | None, list[int]]:
    """Block for one message and the files that come with it; None at the end of the stream."""
    start, files, _, _ = socket.recv_fds(sock, _HEADER.size, _MOST_FILES)
    return (receive(sock, start) if start else None), list(files)


class Channel:
    """The host's end: it waits for a while instead of for ever, and takes no message over `largest` bytes."""

    def __init__(self, sock: socket.socket, largest: int = LARGEST) -> None:
        self._sock, self._largest = sock, largest
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._buffer = bytearray()
        self.is_closed = False

    def send(self, payload: bytes, files: Sequence[int] = ()) -> None:
        """Send one whole message; raises OSError where the peer is gone."""
        send(self._sock, payload, files)

    def take(self) -> bytes | None:
        """The next whole message already here, else None."""
        if len(self._buffer) < _HEADER.size:
            return None
        size = _HEADER.unpack_from(self._buffer)[0]
        if size > self._largest:
            self.is_closed = True
            return None
        end = _HEADER.size + size
        if len(self._buffer) < end:
            return None
        message = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return message

    def wait(self, timeout_s: float) -> bool:
        """Read what arrives within `timeout_s`; False where nothing does. Sets `is_closed` where the peer is gone."""
        if self.is_closed or not self._poll.poll(max(0.0, timeout_s) * 1000):
            return False
        try:
            part = self._sock.recv(1 << 16)
        except OSError:
            part = b""
        self._buffer += part
        self.is_closed = not part
        return True

    def receive(self, timeout_s: float, look: Callable[[], None] | None = None) -> bytes:
        """One message within `timeout_s`; `look` is called now and then while none comes.

        Raises:
            PeerSilent: none came in time.
            PeerGone: the peer is gone.
        """
        deadline = time.monotonic() + timeout_s
        while (message := self.take()) is None:
            if self.is_closed:
                raise PeerGone("the other side is gone")
            left = deadline - time.monotonic()
            if not self.wait(left if look is None else min(left, LOOK_S)):
                if look is not None:
                    look()
                if left <= 0:
                    raise PeerSilent(f"no answer in {timeout_s:.0f} s")
        return message

    def close(self) -> None:
        """Hang up; a thread that waits here wakes up."""
        self.is_closed = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # close alone would not wake a thread that reads from it
        self._sock.close()


# Limits and results.


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one item may use. `wall_s` None means three times the CPU limit plus two seconds.

    Wall time counts while a worker neither computes nor waits for a core or a disk.
    """

    cpu_s: float = 5.0
    wall_s: float | None = None
    memory_mb: int | None = 1024
    load_s: float = 120.0
    patience: float = 10.0
    """How many times the wall limit a worker may take in all, waits for a core included."""
    most_items: int | None = None
    """Items after which a worker is replaced."""
    forks: bool = True
    """Whether a worker may start processes and threads."""

    @property
    def backstop_s(self) -> float:
        """Seconds after which a worker that only waits is given up."""
        return self.wall_s if self.wall_s is not None else 3.0 * self.cpu_s + 2.0


@dataclass(frozen=True, slots=True)
class Done:
    """The work returned."""

    value: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Raised:
    """The work raised; `traceback` is for a log, `bases` the names of the exception's class and of all it derives from."""

    kind: str
    message: str
    traceback: str
    seconds: float
    bases: tuple[str, ...] = ()

    @property
    def at(self) -> str:
        """` (reward.py:7)`, the innermost line of the traceback; empty where it has no line."""
        found = re.findall(r'File "([^"]+)", line (\d+)', self.traceback)
        return f" ({found[-1][0]}:{found[-1][1]})" if found else ""


def raised(kind: str, message: str, traceback: str, bases: Sequence[str], *, seconds: float = 0.0) -> Raised:
    """An exception as a process describes it, made printable."""
    return Raised(printable(kind), printable(message), printable(traceback, lines=True), seconds, tuple(bases))


@dataclass(frozen=True, slots=True)
class Killed:
    """The worker was killed for what it used (`timeout` of CPU, `memory`), or because it waited for something that did
    not come (`no_reply`); or it died on this item (`died`), or there was none (`unavailable`)."""

    reason: str
    seconds: float


Result = Done | Raised | Killed


class LoadFailed(Unavailable):
    """The task could not be loaded in a worker: `kind` and `message` of the exception, `traceback` for a log."""

    def __init__(self, kind: str, message: str, traceback: str) -> None:
        self.kind, self.message = printable(kind), printable(message, lines=True)
        self.traceback = printable(traceback, lines=True)
        super().__init__(f"{self.kind}: {self.message}")
