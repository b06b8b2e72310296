"""What both kinds of lanes use: messages, the descriptors that come with them, and a scratch folder left empty.

Length-prefixed JSON goes over a stream socket between a test program and the solution it tests.
"""

from __future__ import annotations

import _socket
import contextlib
import json
import os
import sys
from typing import Any

MAX_FRAME = 8 << 20
MAX_FDS = 6
MOST_BYTES, MOST_FILES, MOST_DEPTH = 64 << 20, 4096, 100  # about as `namespaces` gives to a scratch folder
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Closed(EOFError):
    """The other side is gone."""


class TooLarge(ValueError):
    """A message over the cap."""


def send(fd: int, message: object) -> None:
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


def wipe(folder: str, mounts: tuple[str, ...] = ()) -> bool:
    """Empty the scratch folder but for what is mounted in it; False if something resists, then the lane has to go.

    Goes down and up by one descriptor: a path may be longer than the system takes, and deeper than a stack.
    """
    spared = [m for m in mounts if m.startswith(folder + "/")]
    with contextlib.suppress(OSError):  # it may be root's, who lets everybody write there
        os.chmod(folder, 0o700)
    here = -1
    try:
        here = os.open(folder, FOLDER)
        levels = [(folder, _sweep(here, folder, spared))]
        while True:
            path, folders = levels[-1]
            if folders:
                name = folders.pop()
                path = f"{path}/{name}" if spared else name
                if not _leads_on(path, spared):
                    os.chmod(name, 0o700, dir_fd=here)
                here = _step(here, name)
                levels.append((path, _sweep(here, path, spared)))
                continue
            levels.pop()
            if not levels:
                return True
            here = _step(here, "..")
            if not _leads_on(path, spared):
                os.rmdir(path.rpartition("/")[2], dir_fd=here)
    except OSError:
        return False
    finally:
        if here >= 0:
            os.close(here)


def _sweep(here: int, path: str, spared: list[str]) -> list[str]:
    """Take away the files of a folder; the names of the folders in it."""
    with os.scandir(here) as found:
        entries = [e for e in found if not spared or f"{path}/{e.name}" not in spared]
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=here)
    return [e.name for e in entries if e.is_dir(follow_symlinks=False)]


def _step(here: int, name: str) -> int:
    there = os.open(name, FOLDER, dir_fd=here)
    os.close(here)
    return there


def _leads_on(path: str, spared: list[str]) -> bool:
    return any(m.startswith(path + "/") for m in spared)


def is_full(folder: str) -> bool:
    """Whether a scratch folder without a file system of its own holds more than one is given, or hides what it holds."""
    size = count = 0
    waiting = [(folder, 0)]
    while waiting:
        at, depth = waiting.pop()
        try:
            with os.scandir(at) as found:
                for entry in found:
                    count += 1
                    if count > MOST_FILES or depth > MOST_DEPTH:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    else:
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue  # taken away meanwhile
        except OSError:
            return True
    return size > MOST_BYTES
