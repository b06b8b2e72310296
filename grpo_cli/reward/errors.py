"""The screen's lines about failing verifiers: one for each kind of failure, and one for a verifier that takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from grpo_cli.statistics.failures import Failures

ERRORS_HINT = "a verifier or its sandbox fails (tracebacks are in train.log); `stop.verifier_errors` sets the limit"
MOST_LINES = 20
"""Number of kinds of failures that get a line."""
SLOW_S = 10.0
"""Seconds in one batch after which a verifier is named: one that never answers blocks the run."""


class FailureLines:
    """Writes each kind of failure once, with message, verifier and row; `note` takes a line and a hint."""

    def __init__(self, note: Callable[[str, str], None] | None = None) -> None:
        self.note = note
        self._kinds: set[str] = set()
        self._slow: set[str] = set()

    def see(self, failures: Failures) -> None:
        """Write a line for each new kind of failure."""
        for key, failure in failures.kinds.items():
            if key in self._kinds or len(self._kinds) >= MOST_LINES or self.note is None:
                continue
            self._kinds.add(key)
            text = f"no verdict on {failure.rows[0]}: `{failure.verifier}`: {failure.reason}: {failure.message}"
            self.note(text, "such samples are counted and never paid 0; more of this kind are only counted")

    @contextmanager
    def timed(self, name: str, samples: int) -> Iterator[None]:
        """Write a line if the block takes long, once for each verifier."""
        # a separate thread, because this one waits for the verifier
        timer = threading.Timer(SLOW_S, self._note_slow, (name, samples))
        timer.daemon = True  # a verifier that never returns must not keep the process alive
        if self.note is not None and name not in self._slow:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _note_slow(self, name: str, samples: int) -> None:
        self._slow.add(name)
        if self.note is not None:
            text = f"`{name}` has judged {samples:,} samples for {SLOW_S:g} s and goes on"
            self.note(text, "`verify.NAME.timeout_s` bounds what one may take, where the kind has it")
