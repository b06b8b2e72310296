"""What both kinds of lanes use: messages and the descriptors that come with them.

Length-prefixed JSON goes over a stream socket between a test program and the solution it tests.
"""

from __future__ import annotations

import _socket
import json
import os
import sys
from typing import Any

MAX_FRAME = 8 << 20
MAX_FDS = 6
ENCODE = json.JSONEncoder(separators=(",", ":")).encode  # made once: `json.dumps` makes one a call


class Closed(EOFError):
    """The other side is gone."""


class TooLarge(ValueError):
    """A message over the cap."""


def send(fd: int, message: object) -> None:
    """Write one message."""
    body = ENCODE(message).encode()
    if len(body) > MAX_FRAME:
        raise TooLarge(f"{len(body)} bytes")
    view = memoryview(len(body).to_bytes(4, "little") + body)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except OSError as err:
            raise Closed from err


def receive(fd: int) -> Any:
    """Read one message.

    Raises:
        Closed, TooLarge; ValueError and RecursionError from json.
    """
    size = int.from_bytes(_exactly(fd, 4), "little")
    if size > MAX_FRAME:
        raise TooLarge(f"{size} bytes")
    return json.loads(_exactly(fd, size))


def _exactly(fd: int, count: int) -> bytes:
    parts = []
    while count:
        try:
            part = os.read(fd, min(count, 1 << 20))
        except OSError as err:
            raise Closed from err
        if not part:
            raise Closed
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive_files(control: _socket.socket) -> tuple[bytes, list[int]]:
    """One message and the descriptors that came with it; nothing when the host is gone."""
    size = _socket.CMSG_SPACE(4 * MAX_FDS)
    message, ancillary, _, _ = control.recvmsg(65536, size, _socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            usable = len(data) - len(data) % 4
            fds += [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, usable, 4)]
    return message, fds
