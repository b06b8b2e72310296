"""Painting frames on the terminal's other screen, so that no frame stays in the scrollback, also after a resize.

Our own painter instead of `rich.live.Live`: it writes a frame in one call, keeps text for the usual screen until
that is back, and gives screen and cursor back from any thread and at exit.
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
        """Turn to the other screen and hide the cursor; both come back at exit even if `close` is never reached."""
        with self._lock:
            if not self._open:
                self._open = True
                atexit.register(self.close)
                self._write(OTHER + HIDE)

    def paint(self, lines: Sequence[Text], size: tuple[int, int]) -> None:
        """Replace the last frame by this one; a screen of another size is emptied first, since its old lines were moved."""
        with self._lock:
            if not self._open or self._away:
                return
            emptied = "" if size == self._size else "\x1b[2J"
            self._size = size
            body = "\r\n".join(f"{self.render(line)}\x1b[K" for line in lines)
            self._write(f"{BEGIN}{emptied}{HOME}{body}\x1b[J{END}")

    def say_below(self, text: str) -> None:
        """Plain text for the usual screen, once it is back; at once where it is there."""
        with self._lock:
            if self._open:
                self._below += text
            else:
                self._write(text)

    def pause(self) -> None:
        """Give the terminal back for a while, as for a Ctrl-Z."""
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
        """The usual screen and its cursor again, with what was kept for it."""
        with self._lock:
            if not self._open or os.getpid() != self._pid:  # a forked child owns no terminal
                return
            self._open = False
            atexit.unregister(self.close)
            self._write(SHOW + USUAL + self._below)
            self._below = ""

    def render(self, line: Text) -> str:
        """One line as the terminal takes it. The pieces of a frame's line do not overlap, so rich's console, which cuts and
        measures them again, is not used: it takes as long as all the drawing."""
        base, at, pieces = str(line.style), 0, list[tuple[str, str]]()
        for span in line.spans:
            pieces += [(line.plain[at : span.start], base), (line.plain[span.start : span.end], f"{base} {span.style}")]
            at = span.end
        shown = [(visible(text), style.strip()) for text, style in [*pieces, (line.plain[at:], base)] if text]
        if self._color:
            return "".join(Style.parse(style).render(text, color_system=ColorSystem.STANDARD) for text, style in shown)
        return "".join(text for text, _ in shown)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal went away: the run goes on
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
