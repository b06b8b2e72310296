"""Length-prefixed JSON over a stream socket between a test program and the solution it tests."""

from __future__ import annotations

import json
import os
from typing import Any

MAX_FRAME = 8 << 20


class Closed(EOFError):
    """The other side is gone."""


class TooLarge(ValueError):
    """A message over the cap."""


def send(fd: int, message: Any) -> None:
    """Write one message."""
    body = json.dumps(message, separators=(",", ":")).encode()
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
