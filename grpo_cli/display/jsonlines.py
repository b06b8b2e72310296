"""`--display json`: one object a line on stderr, `event` says which; a step carries the keys of `metrics.jsonl`."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from typing import Any, TextIO

from grpo_cli.display.frame.sample import SampleView
from grpo_cli.display.stream import put
from grpo_cli.display.wishes import KeyRequests
from grpo_cli.run.folder import iso_now
from grpo_cli.run.info import Card, Level, Metrics, RunInfo
from grpo_cli.run.records import dump_line


class JsonDisplay:
    """Objects for another program."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def start(self, info: RunInfo) -> None:
        """`{"event": "start", …}`."""
        self._emit("start", dataclasses.asdict(info))

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Nothing: phases are for people."""

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        """An event where work begins or ends."""
        if done in (None, 0, total):
            self._emit("progress", {"noun": noun, "done": done, "total": total})

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        """The line of `metrics.jsonl`."""
        self._emit("step", metrics)

    def evaluated(self, metrics: Metrics) -> None:
        """The line of `metrics.jsonl`."""
        self._emit("eval", metrics)

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """A note."""
        self._emit("note", {"level": level, "text": text, "hint": hint})

    def offer(self, wishes: KeyRequests) -> None:
        """Nothing: there are no keys."""

    def finish(self, card: Card) -> None:
        """The end, without the history that the steps told already."""
        skip = ("history", "evaluations")
        self._emit(
            "finish", {f.name: getattr(card, f.name) for f in dataclasses.fields(card) if f.name not in skip}
        )

    def close(self) -> None:
        """Nothing to restore."""

    def _emit(self, event: str, values: Mapping[str, Any]) -> None:
        line = dump_line({"event": event, "at": iso_now(), **values})
        with self._lock:
            put(self._stream, line)
