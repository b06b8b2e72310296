"""What both kinds of lanes use: messages and the descriptors that come with them.

Length-prefixed JSON goes over a stream socket between a test program and the solution it tests, and between a lane and the
host. The length is four bytes, the most significant first, as in `grpo_verifiers.processes.wire`.
"""

from __future__ import annotations

import _socket
import json
import os
import sys
from typing import Any

MAX_FRAME = 16 << 20
MAX_FDS = 6
ENCODE = json.JSONEncoder(separators=(",", ":")).encode  # made once: `json.dumps` makes one a call
DECODE = json.JSONDecoder().decode
CHUNK = 1 << 16


class Closed(EOFError):
    """The other side is gone."""


class TooLarge(ValueError):
    """A message over the cap."""


def send(fd: int, message: object) -> None:
    """Write one message."""
    body = ENCODE(message).encode()
    if len(body) > MAX_FRAME:
        raise TooLarge(f"{len(body)} bytes")
    view = memoryview(_framed(body))
    while view:  # mostly once
        try:
            view = view[os.write(fd, view) :]
        except OSError as err:
            raise Closed from err


def read(fd: int) -> bytes:
    """One message as it came. Both sides speak in turn: it is mostly one read, and nothing may follow.

    Raises:
        Closed, TooLarge; ValueError: more follows.
    """
    data = b""
    while len(data) < 4:
        data += _exactly(fd, 1, CHUNK)
    size = int.from_bytes(data[:4], "big")
    # refused before it is read: four bytes of a solution must not make the other side reserve gigabytes
    if size > MAX_FRAME:
        raise TooLarge(f"{size} bytes")
    if len(data) > size + 4:
        raise ValueError("two messages in a row")
    return data[4:] + _exactly(fd, size + 4 - len(data))


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _exactly(fd: int, count: int, at_once: int = 0) -> bytes:
    """So many bytes; up to `at_once` where more are there already."""
    parts = []
    while count > 0:
        try:
            # at most a mebibyte is set aside at once, however much was announced
            part = os.read(fd, at_once or min(count, 1 << 20))
        except OSError as err:
            raise Closed from err
        if not part:
            raise Closed
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive_files(control: _socket.socket) -> tuple[bytes, list[int]]:
    """One message of the host and the descriptors that came with it; nothing when the host is gone.

    Framed as `grpo_verifiers.processes.wire` does it, which cannot be imported here.
    """
    space = _socket.CMSG_SPACE(4 * MAX_FDS)
    start, ancillary, _, _ = control.recvmsg(4, space, _socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            # a cut message ends within a number, which is no descriptor
            usable = len(data) - len(data) % 4
            fds += [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, usable, 4)]
    try:
        header = start + _exactly(control.fileno(), 4 - len(start)) if start else b""
        return _exactly(control.fileno(), int.from_bytes(header, "big")), fds
    except Closed:
        return b"", fds


def answer(control: _socket.socket, number: int, **said: Any) -> None:
    """Answer question `number` of the host; 0 is the greeting."""
    body = json.dumps({**said, "id": number}).encode()
    control.sendall(_framed(body))
