"""Which display a run gets, and the displays that need no screen.

`make_display` reads the mode and the stream, and returns a `LoggedDisplay`: it writes the plain lines into the run's
`train.log` and passes every call on to the display that is shown. That is `live` (`terminal/`), `plain` (`plain.py`),
`json` or `none` (both here). The stream itself is asked whether it is a terminal, because rich takes any stream for one
under `FORCE_COLOR`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TextIO

from grpo_cli.display.frame.sample import SampleView
from grpo_cli.display.plain import PlainDisplay, put
from grpo_cli.display.protocol import Display, KeyRequests
from grpo_cli.errors import UsageError, without_credentials
from grpo_cli.run.folder import RunFolder, iso_now
from grpo_cli.run.info import Card, Level, Metrics, RunInfo
from grpo_cli.run.records import dump_line
from grpo_cli.text import needs_ascii, raw, visible, without_home

# `--display none`: errors alone, so that a failing run always prints why.


class SilentDisplay(Display):
    """Shows nothing but errors."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def note(self, level: Level, text: str, hint: str = "") -> None:
        if level == "error":
            put(self._stream, "".join(f"{visible(line)}\n" for line in f"error: {text}".splitlines()))


# `--display json`: one object a line on stderr, `event` names its kind; a step carries the keys of
# `metrics.jsonl`.


class JsonDisplay(Display):
    """Objects for another program."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def start(self, info: RunInfo) -> None:
        self._emit("start", dataclasses.asdict(info))

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        """An event where work begins or ends."""
        if done in (None, 0, total):
            self._emit("progress", {"noun": noun, "done": done, "total": total})

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        self._emit("step", metrics)

    def evaluated(self, metrics: Metrics) -> None:
        self._emit("eval", metrics)

    def note(self, level: Level, text: str, hint: str = "") -> None:
        self._emit("note", {"level": level, "text": text, "hint": hint})

    def finish(self, card: Card) -> None:
        """The end, without the history, which the steps have sent already."""
        skip = ("history", "evaluations")
        self._emit("finish", {f.name: getattr(card, f.name) for f in dataclasses.fields(card) if f.name not in skip})

    def _emit(self, event: str, values: Mapping[str, Any]) -> None:
        line = dump_line({"event": event, "at": iso_now(), **values})
        with self._lock:
            put(self._stream, line)


# Every display also writes the plain lines to the run's `train.log`.


class LogFile(io.TextIOBase):
    """`train.log`, one write at a time. On a full disk lines are dropped: unlike the records, the log does not stop a
    run."""

    def __init__(self, path: str) -> None:
        try:
            # if the file is a pipe that nobody reads, opening it would block
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
            self._descriptor = os.open(path, how, 0o666)
        except OSError:
            self._descriptor = os.open(os.devnull, os.O_WRONLY)

    def write(self, text: str) -> int:
        """Append at once, so that whole lines interleave with those of `RunFolder.log`."""
        # libraries may quote a path or an address that contains a secret
        shown = without_home(without_credentials(text))
        with contextlib.suppress(OSError):
            os.write(self._descriptor, shown.encode("utf-8", "backslashreplace"))
        return len(text)

    def close(self) -> None:
        """Any number of times."""
        if not self.closed:
            super().close()
            os.close(self._descriptor)
            self._descriptor = -1  # the descriptor's number may soon belong to another file


class LoggedDisplay(Display):
    """Passes everything on, and buffers log lines until the run has a folder."""

    def __init__(self, shown: Display) -> None:
        self.shown = shown
        self._file: LogFile | None = None
        self._early = io.StringIO()
        self._early_lock = threading.Lock()
        self._log = PlainDisplay(self._early)
        self._folder = ""
        self._has_stepped = False

    def start(self, info: RunInfo) -> None:
        """Open `train.log`, then start."""
        self._folder = info.folder
        if info.log:
            with self._early_lock:
                self._file = LogFile(info.log)
                self._file.write(self._early.getvalue())
                self._log.move_to(self._file)
        self._log.start(info)
        self.shown.start(info)

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        self.shown.phase(name, done, total)

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        self._log.progress(noun, done, total)
        self.shown.progress(noun, done, total)

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        recall, step, folder = getattr(self.shown, "recall", None), int(metrics.get("step") or 0), Path(self._folder)
        if not self._has_stepped and recall is not None and step > 1 and (folder / "metrics.jsonl").is_file():
            # a resumed run shows its own past: curves, starts and means equal those of an uninterrupted run
            recall([m for m in RunFolder(folder).metrics() if int(m.get("step") or 0) < step])
        self._has_stepped = True
        self._log.step(metrics, view)
        self.shown.step(metrics, view)

    def evaluated(self, metrics: Metrics) -> None:
        self._log.evaluated(metrics)
        self.shown.evaluated(metrics)

    def note(self, level: Level, text: str, hint: str = "") -> None:
        self._log.note(level, text, hint)
        self.shown.note(level, text, hint)

    def offer(self, wishes: KeyRequests) -> None:
        self.shown.offer(wishes)

    def finish(self, card: Card) -> None:
        self._log.finish(card)
        self.shown.finish(card)

    def close(self) -> None:
        """Close both; what comes later is shown only."""
        self.shown.close()
        if self._file is not None:
            self._log.move_to(io.StringIO())
            self._file.close()
            self._file = None


Mode = Literal["auto", "live", "plain", "json", "none"]
MODES: tuple[Mode, ...] = ("auto", "live", "plain", "json", "none")


def make_display(mode: str = "auto", stream: TextIO | None = None, *, ascii: bool | None = None) -> Display:
    """The display for this stream (stderr); `auto` reads `GRPO_DISPLAY`, then checks the stream.

    Raises:
        UsageError: no such display.
    """
    stream = stream or sys.stderr
    chosen, plain_glyphs = choose_mode(mode, stream), needs_ascii(stream) if ascii is None else ascii
    if chosen == "live":
        from grpo_cli.display.terminal.live import LiveDisplay

        return LoggedDisplay(LiveDisplay(raw(stream), ascii=plain_glyphs, color=wants_color(stream)))
    if chosen == "plain":
        return LoggedDisplay(PlainDisplay(stream, ascii=plain_glyphs))
    return LoggedDisplay(JsonDisplay(stream) if chosen == "json" else SilentDisplay(stream))


def choose_mode(mode: str, stream: TextIO) -> Mode:
    """The mode that `auto` selects: live on a terminal that can move its cursor, else plain; plain in a notebook.

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
