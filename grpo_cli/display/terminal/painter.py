"""Painting frames in place, inline, so that scrollback survives and the last frame stays.

Our own painter instead of `rich.live.Live`: it knows how many rows the last frame takes after the terminal was made
narrower (old lines wrap), writes a frame in one call, and gives the cursor back from any thread and at exit.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import threading
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: terminals that know it show the frame at once, others ignore it."""


class Painter:
    """Owns the lines between the cursor and the last text above it."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._widths: list[int] = []
        self._open = False
        self._pid = os.getpid()
        self._buffer = io.StringIO()
        self._console = Console(
            file=self._buffer, force_terminal=True, color_system="standard" if color else None, no_color=not color,
            force_interactive=False, highlight=False, markup=False, emoji=False, legacy_windows=False, width=1000,
        )  # fmt: skip

    def open(self) -> None:
        """Hide the cursor; it comes back at exit even if `close` is never reached."""
        with self._lock:
            if not self._open:
                self._open = True
                atexit.register(self.close)
                self._write(HIDE)

    def paint(self, lines: Sequence[Text], width: int) -> None:
        """Replace the last frame by this one."""
        with self._lock:
            if not self._open:
                return
            body = "".join(f"{self.render(line)}\x1b[K\n" for line in lines)
            self._write(f"{BEGIN}{self._back(width)}{body}\x1b[J{END}")
            self._widths = [line.cell_len for line in lines]

    def above(self, text: str, width: int) -> None:
        """Print plain text above the frame, which is painted again by the next `paint`."""
        with self._lock:
            self._write(f"{self._back(width)}\x1b[J{text}")
            self._widths = []

    def close(self) -> None:
        """Show the cursor again, below the last frame."""
        with self._lock:
            if not self._open or os.getpid() != self._pid:  # a forked child owns no terminal
                return
            self._open = False
            atexit.unregister(self.close)
            self._widths = []
            self._write(SHOW)

    def _back(self, width: int) -> str:
        rows = sum(max(1, -(-cells // max(width, 1))) for cells in self._widths)
        return f"\r\x1b[{rows}A" if rows else "\r"

    def render(self, line: Text) -> str:
        """One line as the terminal takes it."""
        self._buffer.seek(0)
        self._buffer.truncate()
        self._console.print(line, end="", soft_wrap=True)
        return self._buffer.getvalue()

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal went away: the run goes on
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(text.encode("ascii", "replace").decode("ascii"))
            self._stream.flush()


def screen_size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows of this stream's terminal; `COLUMNS` and `LINES` where it cannot tell."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    width = size.columns or _positive(os.environ.get("COLUMNS")) or 80
    height = size.lines or _positive(os.environ.get("LINES")) or 24
    return width, height


def _positive(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
