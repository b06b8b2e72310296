"""What every display does beside showing: the plain lines go to the run's `train.log`, and health notes are said."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import TextIO

from grpo_cli.display.info import Card, Display, Level, Metrics, RunInfo
from grpo_cli.display.plain import PlainDisplay
from grpo_cli.display.sample import SampleView
from grpo_cli.health import Health
from grpo_cli.run import RunFolder
from grpo_cli.run.follow import is_step


class LoggedDisplay:
    """Passes everything on, and keeps what was said before the run had a folder until it has one."""

    def __init__(self, shown: Display) -> None:
        self.shown = shown
        self._file: TextIO | None = None
        self._early = io.StringIO()
        self._early_lock = threading.Lock()
        self._log = PlainDisplay(self._early)
        self._health = Health()
        self._folder = ""
        self._has_stepped = False

    def start(self, info: RunInfo) -> None:
        """Open `train.log`, then start."""
        self._folder = info.folder
        if info.log:
            with self._early_lock:
                # Line buffered and appending: whole lines interleave with those of `RunFolder.log`.
                self._file = open(info.log, "a", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115 - closed in close()
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
        """Logged and shown, with what is wrong from this step on."""
        if not self._has_stepped:
            self._has_stepped = True
            self._recall(int(metrics.get("step") or 0))
        self._log.step(metrics, view)
        self.shown.step(metrics, view)
        for finding in self._health.step(metrics):
            self.note("warn", finding.text, f"{finding.hint}  [{finding.code}]")

    def _recall(self, step: int) -> None:
        """A resumed run goes on with its own past: curves, starts and means are those of an unbroken one."""
        if step <= 1 or not (Path(self._folder) / "metrics.jsonl").is_file():
            return
        earlier = [m for m in RunFolder(Path(self._folder)).metrics() if int(m.get("step") or 0) < step]
        for metrics in earlier:
            if is_step(metrics):
                self._health.step(metrics)
        recall = getattr(self.shown, "recall", None)
        if recall is not None:
            recall(earlier)

    def evaluated(self, metrics: Metrics) -> None:
        """Logged and shown."""
        self._log.evaluated(metrics)
        self.shown.evaluated(metrics)

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """Logged and shown."""
        self._log.note(level, text, hint)
        self.shown.note(level, text, hint)

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
