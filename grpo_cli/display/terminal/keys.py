"""Single keys from the terminal while a frame is up. Only the foreground process may touch the terminal's modes:
a background one would be stopped by the kernel (SIGTTOU, SIGTTIN)."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import sys
import threading
from collections.abc import Callable
from typing import Any

SEQUENCES = {
    "A": "up", "B": "down", "C": "right", "D": "left", "5~": "page up", "6~": "page down",
}  # fmt: skip
"""What comes after ESC [ (or ESC O) of the keys that send more than one byte."""
_KEY = re.compile(r"\x1b[\[O](?P<sequence>[0-9;]*[A-Za-z~])|(?P<char>[ -~])")


def keys_of(data: bytes) -> list[str]:
    """Keys in what a terminal sent: characters and the names of arrows; other sequences are no keys of ours."""
    found = []
    for match in _KEY.finditer(data.decode("ascii", "ignore")):
        key = match["char"] or SEQUENCES.get(match["sequence"])
        if key is not None:
            found.append(key)
    return found


class KeyReader:
    """Reads keys on a thread and calls `pressed`; Ctrl-C stays a signal."""

    def __init__(self, pressed: Callable[[str], None]) -> None:
        self._pressed = pressed
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

            self._fd = sys.stdin.fileno()
            if not os.isatty(self._fd) or not self._is_foreground():
                return False
            self._modes = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd, termios.TCSANOW)
        except (ImportError, OSError, ValueError, AttributeError, termios.error):
            self._modes = None
            return False
        atexit.register(self.close)
        self._thread = threading.Thread(target=self._read, name="grpo-keys", daemon=True)
        self._thread.start()
        return True

    def again(self) -> None:
        """Read single keys again, after another program had the terminal."""
        if self._modes is None or not self._is_foreground():
            return
        import tty

        with contextlib.suppress(OSError):
            tty.setcbreak(self._fd)

    def close(self) -> None:
        """Give the terminal its modes back; any number of times."""
        self._stop.set()
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
        while not self._stop.is_set():
            try:
                ready, _, _ = select.select([self._fd], [], [], 0.25)
                if not ready or not self._is_foreground():
                    continue
                data = os.read(self._fd, 32)
            except (OSError, ValueError):
                return
            if not data:
                return
            for key in keys_of(data):
                self._pressed(key)
