"""Length-prefixed messages over a stream socket between a pool and its processes.

Only the host ever pickles: a worker that has met hostile text answers in JSON, so its replies cannot run code here.
"""

from __future__ import annotations

import select
import socket
import struct

_HEADER = struct.Struct("!I")
LARGEST = 64 * 1024 * 1024
"""Bytes of one message; a longer announcement counts as a broken peer."""


def send(sock: socket.socket, payload: bytes) -> None:
    """Send one whole message; raises OSError where the peer is gone."""
    sock.sendall(_HEADER.pack(len(payload)) + payload)


def receive(sock: socket.socket) -> bytes | None:
    """Block for one message; None at the end of the stream."""
    header = _exactly(sock, _HEADER.size)
    if header is None:
        return None
    return _exactly(sock, _HEADER.unpack(header)[0])


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


class Inbox:
    """The reading end that can wait for a while instead of for ever."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._buffer = bytearray()
        self.is_closed = False

    def take(self) -> bytes | None:
        """The next whole message already here, else None."""
        if len(self._buffer) < _HEADER.size:
            return None
        size = _HEADER.unpack_from(self._buffer)[0]
        if size > LARGEST:
            self.is_closed = True
            return None
        end = _HEADER.size + size
        if len(self._buffer) < end:
            return None
        message = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return message

    def wait(self, timeout_s: float) -> None:
        """Read what arrives within `timeout_s`; sets `is_closed` where the peer is gone."""
        if self.is_closed or not self._poll.poll(max(0.0, timeout_s) * 1000):
            return
        try:
            part = self._sock.recv(1 << 20)
        except OSError:
            part = b""
        if part:
            self._buffer += part
        else:
            self.is_closed = True
