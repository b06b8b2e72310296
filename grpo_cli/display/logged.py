"""What every display does beside showing: the plain lines go to the run's `train.log`."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from pathlib import Path
from typing import Any, TextIO

from grpo_cli.display.frame.sample import SampleView
from grpo_cli.display.plain import PlainDisplay
from grpo_cli.display.protocol import Display
from grpo_cli.display.wishes import KeyRequests
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Card, Level, Metrics, RunInfo


class LogFile(io.RawIOBase):
    """The bytes of `train.log`. What a full disk does not take is dropped: records stop a run, its log does not."""

    def __init__(self, path: str) -> None:
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError:
            self._descriptor = os.open(os.devnull, os.O_WRONLY)

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Append, if the disk takes it."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, data)
        return len(data)

    def close(self) -> None:
        """Close."""
        if not self.closed:
            super().close()
            os.close(self._descriptor)


def open_log(path: str) -> TextIO:
    """Line buffered and appending: whole lines interleave with those of `RunFolder.log`."""
    raw = io.BufferedWriter(LogFile(path))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


class LoggedDisplay:
    """Passes everything on, and keeps what was said before the run had a folder until it has one."""

    def __init__(self, shown: Display) -> None:
        self.shown = shown
        self._file: TextIO | None = None
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
                self._file = open_log(info.log)
                self._file.write(self._early.getvalue())
                self._log.move_to(self._file)
        self._log.start(info)
        self.shown.start(info)

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Shown only."""
        self.shown.phase(name, done, total)

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        """Logged and shown."""
        self._log.progress(noun, done, total)
        self.shown.progress(noun, done, total)

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        """Logged and shown."""
        if not self._has_stepped:
            self._has_stepped = True
            self._recall(int(metrics.get("step") or 0))
        self._log.step(metrics, view)
        self.shown.step(metrics, view)

    def _recall(self, step: int) -> None:
        """A resumed run goes on with its own past: curves, starts and means are those of an unbroken one."""
        recall = getattr(self.shown, "recall", None)
        if recall is None or step <= 1 or not (Path(self._folder) / "metrics.jsonl").is_file():
            return
        recall([m for m in RunFolder(Path(self._folder)).metrics() if int(m.get("step") or 0) < step])

    def evaluated(self, metrics: Metrics) -> None:
        """Logged and shown."""
        self._log.evaluated(metrics)
        self.shown.evaluated(metrics)

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """Logged and shown."""
        self._log.note(level, text, hint)
        self.shown.note(level, text, hint)

    def offer(self, wishes: KeyRequests) -> None:
        """Passed on."""
        self.shown.offer(wishes)

    def finish(self, card: Card) -> None:
        """Logged and shown."""
        self._log.finish(card)
        self.shown.finish(card)

    def close(self) -> None:
        """Close both; what comes later is shown only."""
        self.shown.close()
        if self._file is not None:
            self._log.move_to(io.StringIO())
            self._file.close()
            self._file = None
