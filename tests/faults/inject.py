"""Strikes at the n-th change to a run's files: death, half a write and death, a full disk, a signal, dead workers.

Python's own file operations are counted through an audit hook and wrapped calls; what torch and safetensors write in
native code lies between two of them, and is hit by kills at random times instead.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.builders.warm import children

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"}
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}


class Striker:
    """Counts changes under `folder`, from the first of a path with `after` in it, and strikes once, before the change.

    `log` gets one line a change.
    """

    def __init__(self, folder: str, at: int, how: str, after: str = "", log: str | None = None) -> None:
        self.folder, self.at, self.how, self.after, self.log = os.path.realpath(folder), at, how, after, log
        self.count, self.is_busy = 0, False

    def install(self) -> None:
        """Count from here on; a hook cannot be taken away again, so this is for a process of its own."""
        sys.addaudithook(self._see)
        os.fsync = self._wrapped(os.fsync, "fsync")
        os.write = self._wrapped(os.write, "write")  # type: ignore[assignment]

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            is_write = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if is_write and isinstance(path, str) and self._is_ours(path):
                self._count(event, path)
        elif event in CHANGES:
            path = args[1] if event == "os.rename" else args[0]
            if isinstance(path, str | os.PathLike) and self._is_ours(str(path)):
                self._count(event, str(path))

    def _wrapped(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(fd: int, *data: Any) -> Any:
            path = "" if self.is_busy else os.readlink(f"/proc/self/fd/{fd}")
            if self._is_ours(path) and self._count(name, path) and data:  # counted and alive: `half`
                call(fd, data[0][: len(data[0]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(fd, *data)

        return counted

    def _is_ours(self, path: str) -> bool:
        return not self.is_busy and os.path.abspath(path).startswith(self.folder + os.sep)

    def _count(self, event: str, path: str) -> bool:
        """Strike if it is time; True where the caller has to write half and die."""
        if not self.count and self.after not in path:
            return False
        self.is_busy = True
        try:
            self.count += 1
            if self.log is not None:
                with open(self.log, "a") as file:
                    print(self.count, event, os.path.relpath(path, self.folder), file=file)
            return self.count == self.at and self._strike(event)
        finally:
            self.is_busy = False

    def _strike(self, event: str) -> bool:
        if self.how == "half" and event == "write":
            return True
        if self.how == "fill":
            fill(self.folder)
        elif self.how == "workers":
            for pid in children(os.getpid()):
                os.kill(pid, signal.SIGKILL)
        else:
            os.kill(os.getpid(), SIGNALS.get(self.how, signal.SIGKILL))
        return False


def fill(folder: str) -> None:
    """Take all space that is left where the folder lies."""
    with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 8, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
