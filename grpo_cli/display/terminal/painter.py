"""Paints frames on the terminal's alternate screen, so that no frame stays in the scrollback, even after a resize.

It is used instead of `rich.live.Live` because it writes a frame in one call, keeps text until the normal screen is
back, and restores screen and cursor from any thread and at exit.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Sequence
from typing import TextIO

from rich.color import ColorSystem
from rich.style import Style
from rich.text import Text

from grpo_cli.text import visible

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
OTHER, USUAL = "\x1b[?1049h", "\x1b[?1049l"
"""The alternate screen and the usual one, with its scrollback as it was."""
HOME = "\x1b[H"
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: terminals that support it show the frame at once, others ignore it."""


class Painter:
    """Owns the screen while it is open."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._below = ""
        self._size = (0, 0)
        self._open = self._away = False
        self._pid = os.getpid()
        self._color = color

    def open(self) -> None:
        """Switch to the alternate screen and hide the cursor; both are restored at exit even if `close` is never
        called."""
        with self._lock:
            if not self._open:
                self._open = True
                atexit.register(self.close)
                self._write(OTHER + HIDE)

    def paint(self, lines: Sequence[Text], size: tuple[int, int]) -> None:
        """Replace the last frame by this one. After a resize the screen is cleared first, because the terminal has
        moved its lines."""
        with self._lock:
            if not self._open or self._away:
                return
            emptied = "" if size == self._size else "\x1b[2J"
            self._size = size
            body = "\r\n".join(f"{self.render(line)}\x1b[K" for line in lines)
            self._write(f"{BEGIN}{emptied}{HOME}{body}\x1b[J{END}")

    def say_below(self, text: str) -> None:
        """Print plain text on the normal screen: at once if it is shown, else when it is back."""
        with self._lock:
            if self._open:
                self._below += text
            else:
                self._write(text)

    def pause(self) -> None:
        """Release the terminal for a while, as for a Ctrl-Z."""
        with self._lock:
            if self._open:
                self._away = True
                self._write(SHOW + USUAL)

    def resume(self) -> None:
        """Take it again."""
        with self._lock:
            if self._open:
                self._away, self._size = False, (0, 0)
                self._write(OTHER + HIDE)

    def close(self) -> None:
        """Restore the normal screen and its cursor, and print the text that was kept for it."""
        with self._lock:
            if not self._open or os.getpid() != self._pid:  # a forked child owns no terminal
                return
            self._open = False
            atexit.unregister(self.close)
            self._write(SHOW + USUAL + self._below)
            self._below = ""

    def render(self, line: Text) -> str:
        """One line as terminal codes. rich's console is not used: it would cut and measure the pieces again, although
        they never overlap, which takes as long as all the drawing."""
        base, at, pieces = str(line.style), 0, list[tuple[str, str]]()
        for span in line.spans:
            pieces += [(line.plain[at : span.start], base), (line.plain[span.start : span.end], f"{base} {span.style}")]
            at = span.end
        shown = [(visible(text), style.strip()) for text, style in [*pieces, (line.plain[at:], base)] if text]
        if self._color:
            return "".join(Style.parse(style).render(text, color_system=ColorSystem.STANDARD) for text, style in shown)
        return "".join(text for text, _ in shown)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone: the run continues
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(text.encode("ascii", "replace").decode("ascii"))
            self._stream.flush()


def screen_size(stream: TextIO, usual: tuple[int, int] = (80, 24)) -> tuple[int, int]:
    """Columns and rows of this stream's terminal; `COLUMNS` and `LINES` where it does not report them, else the usual
    ones."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    columns, lines = (
        int(text) if text.isdigit() else 0 for text in map(os.environ.get, ("COLUMNS", "LINES"), ("", ""))
    )
    return size.columns or columns or usual[0], size.lines or lines or usual[1]
