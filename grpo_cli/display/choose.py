"""Which display a run gets. The stream itself is asked: `FORCE_COLOR` makes rich believe that a file is a terminal."""

from __future__ import annotations

import os
import sys
from typing import Literal, TextIO

from grpo_cli.display.logged import LoggedDisplay
from grpo_cli.display.protocol import Display
from grpo_cli.errors import UsageError
from grpo_cli.text import needs_ascii, raw

Mode = Literal["auto", "live", "plain", "json", "none"]
MODES: tuple[Mode, ...] = ("auto", "live", "plain", "json", "none")


def make_display(mode: str = "auto", stream: TextIO | None = None, *, ascii: bool | None = None) -> Display:
    """The display for this stream (stderr); `auto` reads `GRPO_DISPLAY`, then asks the stream.

    Raises:
        UsageError: no such display.
    """
    return LoggedDisplay(_shown(choose_mode(mode, stream or sys.stderr), stream or sys.stderr, ascii))


def choose_mode(mode: str, stream: TextIO) -> Mode:
    """What `auto` comes to: live on a terminal that can move its cursor, else plain; plain in a notebook.

    Raises:
        UsageError: no such mode, in the option or in `GRPO_DISPLAY`.
    """
    place = "--display"
    if mode == "auto" and os.environ.get("GRPO_DISPLAY"):
        mode, place = os.environ["GRPO_DISPLAY"], "GRPO_DISPLAY"
    if mode not in MODES:
        raise UsageError(f"unknown display `{mode}`", place=place, hint=f"one of {', '.join(MODES)}")
    if mode == "auto" and in_notebook():
        return "plain"
    if mode in ("auto", "live"):
        return "live" if can_animate(stream) else "plain"
    return mode


def in_notebook() -> bool:
    """Whether a Jupyter kernel started this process: `!grpo …` in a cell gets a terminal that cannot move its cursor up."""
    return "JPY_PARENT_PID" in os.environ


def can_animate(stream: TextIO) -> bool:
    """Whether the stream is a terminal with a cursor."""
    try:
        is_terminal = stream.isatty()
    except ValueError:  # closed
        return False
    return is_terminal and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def wants_color(stream: TextIO) -> bool:
    """`NO_COLOR` (not empty) wins, then `FORCE_COLOR`, then whether the stream is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return can_animate(stream)


def _shown(mode: Mode, stream: TextIO, ascii: bool | None) -> Display:
    plain_glyphs = needs_ascii(stream) if ascii is None else ascii
    if mode == "live":
        from grpo_cli.display.terminal.live import LiveDisplay

        return LiveDisplay(raw(stream), ascii=plain_glyphs, color=wants_color(stream))
    if mode == "json":
        from grpo_cli.display.jsonlines import JsonDisplay

        return JsonDisplay(stream)
    if mode == "none":
        from grpo_cli.display.silent import SilentDisplay

        return SilentDisplay(stream)
    from grpo_cli.display.plain import PlainDisplay

    return PlainDisplay(stream, ascii=plain_glyphs)
