"""Single keys while a frame is up, from the terminal or, in a rank, from the process that has the terminal.

How this works: a `KeyReader` reads on a thread and calls a function with each key. For a run on several ranks
`relayed_keys` reads keys in the launching process and writes their names into a named pipe, from which the reader of
rank 0 takes them. Only the foreground process may touch the terminal's modes: a background one would be stopped by the
kernel (SIGTTOU, SIGTTIN).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PIPE = "keys"
SEQUENCES = {
    "A": "up", "B": "down", "C": "right", "D": "left", "5~": "page up", "6~": "page down",
}  # fmt: skip
"""The bytes after ESC [ (or ESC O) for keys that send more than one byte."""
_KEY = re.compile(r"\x1b[\[O](?P<sequence>[0-9;]*[A-Za-z~])|(?P<char>[ -~])")


def keys_of(data: bytes) -> list[str]:
    """Keys in what a terminal sent: characters and the names of arrows; other sequences are ignored."""
    found = []
    for match in _KEY.finditer(data.decode("ascii", "ignore")):
        key = match["char"] or SEQUENCES.get(match["sequence"])
        if key is not None:
            found.append(key)
    return found


class KeyReader:
    """Reads keys on a thread and calls `pressed`; Ctrl-C stays a signal. `control` is the folder with the pipe of a rank."""

    def __init__(self, pressed: Callable[[str], None], control: str | None = None) -> None:
        self._pressed = pressed
        self._pipe = None if control is None else Path(control) / PIPE
        self._stop = threading.Event()
        self._modes: list[Any] | None = None
        self._fd = -1
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None

    def open(self) -> bool:
        """Whether keys are read now."""
        try:
            import termios
            import tty

            if self._pipe is not None:
                # open for reading and writing: a pipe that is only read reports its end while there is no writer
                self._fd = os.open(self._pipe, os.O_RDWR)
            else:
                self._fd = sys.stdin.fileno()
                if not os.isatty(self._fd) or not self._is_foreground():
                    return False
                self._modes = termios.tcgetattr(self._fd)
                tty.setcbreak(self._fd, termios.TCSANOW)
                atexit.register(self.close)
        except (ImportError, OSError, ValueError, AttributeError, termios.error):
            self._modes = None
            return False
        self._thread = threading.Thread(target=self._read, name="grpo-keys", daemon=True)
        self._thread.start()
        return True

    def again(self) -> None:
        """Read single keys again, after another program used the terminal."""
        if self._modes is None or not self._is_foreground():
            return
        import tty

        with contextlib.suppress(OSError):
            tty.setcbreak(self._fd)

    def close(self) -> None:
        """Stop reading, and restore the terminal's modes; may be called repeatedly."""
        self._stop.set()
        if self._pipe is not None and self._fd >= 0:
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join(timeout=1.0)
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)
        if self._modes is None or os.getpid() != self._pid:
            return
        import termios

        modes, self._modes = self._modes, None
        atexit.unregister(self.close)
        if self._is_foreground():
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, modes)

    def _is_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    def _read(self) -> None:
        left = b""
        while not self._stop.is_set():
            try:
                ready, _, _ = select.select([self._fd], [], [], 0.25)
                if not ready or not (self._pipe or self._is_foreground()):
                    continue
                data = os.read(self._fd, 4096 if self._pipe else 32)
            except (OSError, ValueError):
                return
            if not data:
                return
            if self._pipe is None:
                keys = keys_of(data)
            else:  # names of keys, one a line; the last may be cut
                *names, left = (left + data).split(b"\n")
                keys = [name.decode() for name in names]
            for key in keys:
                self._pressed(key)


@contextmanager
def relayed_keys(control: Path) -> Iterator[None]:
    """In the launching process: read keys as soon as rank 0 draws, and restore the terminal's modes at the end."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    os.mkfifo(control / PIPE, 0o600)
    readers: list[KeyReader] = []

    def hand_on() -> None:
        with contextlib.suppress(OSError):
            pipe = os.open(control / PIPE, os.O_WRONLY)  # returns as soon as rank 0 has opened its end

            def send(key: str) -> None:
                try:
                    os.write(pipe, f"{key}\n".encode())
                except BrokenPipeError:  # rank 0 draws no more
                    readers[0].close()

            readers.append(KeyReader(send))
            readers[0].open()

    threading.Thread(target=hand_on, name="grpo-relay", daemon=True).start()
    try:
        yield
    finally:
        for reader in readers:
            reader.close()
