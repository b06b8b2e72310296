"""`--display none`: warnings and errors alone, so that a run which goes wrong is never mute."""

from __future__ import annotations

from typing import TextIO

from grpo_cli.display.frame.sample import SampleView
from grpo_cli.display.stream import put
from grpo_cli.display.wishes import KeyRequests
from grpo_cli.run.info import Card, Level, Metrics, RunInfo
from grpo_cli.text import visible


class SilentDisplay:
    """Says nothing but errors."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, info: RunInfo) -> None:
        """Nothing."""

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Nothing."""

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        """Nothing."""

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        """Nothing."""

    def evaluated(self, metrics: Metrics) -> None:
        """Nothing."""

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """Errors alone."""
        if level == "error":
            put(self._stream, "".join(f"{visible(line)}\n" for line in f"error: {text}".splitlines()))

    def offer(self, wishes: KeyRequests) -> None:
        """Nothing: there are no keys."""

    def finish(self, card: Card) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing to restore."""
