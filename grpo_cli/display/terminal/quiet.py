"""Keeping other people's bars, warnings and prints out of the frame: while it is up they go to `train.log`.

File descriptor 2 itself is turned, so native code and child processes are covered too; the painter writes to a copy
of it. Before the run has a log the text waits in an unnamed file, and it comes back to the terminal if it never gets one.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import IO, TextIO

SILENCING: Mapping[str, str] = {
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}
"""Read by these libraries when they are imported; values that a person set stay."""


class StderrSilencer:
    """Turns stderr away from a terminal and back."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._kept_fd: int | None = None
        self._waiting: IO[bytes] | None = None
        self.terminal: TextIO = stream

    def open(self) -> None:
        """Silence bars; where the stream is descriptor 2 itself, turn it away."""
        for name, value in SILENCING.items():
            os.environ.setdefault(name, value)
        silence_loaded()
        try:
            is_ours = self._stream.fileno() == 2
        except (OSError, ValueError, io.UnsupportedOperation):
            is_ours = False
        if not is_ours:
            return
        self._stream.flush()
        self._kept_fd = os.dup(2)
        os.set_inheritable(self._kept_fd, False)
        encoding = self._stream.encoding
        self.terminal = os.fdopen(self._kept_fd, "w", encoding=encoding, errors="replace", closefd=False)
        self._waiting = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `log_to` or `close`
        os.dup2(self._waiting.fileno(), 2)

    def log_to(self, path: str) -> None:
        """From now on into this file; what waited goes first."""
        silence_loaded()
        if self._kept_fd is None:
            return
        with contextlib.suppress(OSError), open(path, "ab") as log:
            self._stream.flush()
            log.write(self._take_waiting())
            log.flush()
            os.dup2(log.fileno(), 2)

    def close(self) -> None:
        """Give descriptor 2 back; what never found a log is said now."""
        if self._kept_fd is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
        waited = self._take_waiting()
        os.dup2(self._kept_fd, 2)
        if waited:
            with contextlib.suppress(OSError):
                os.write(2, waited)
        self.terminal = self._stream
        os.close(self._kept_fd)
        self._kept_fd = None

    def _take_waiting(self) -> bytes:
        if self._waiting is None:
            return b""
        waiting, self._waiting = self._waiting, None
        waiting.seek(0)
        text = waiting.read()
        waiting.close()
        return text


def silence_loaded() -> None:
    """Switch off the bars of libraries that were imported before the environment said so."""
    for module, function in (
        ("transformers.utils.logging", "disable_progress_bar"),
        ("datasets.utils", "disable_progress_bars"),
        ("huggingface_hub.utils", "disable_progress_bars"),
    ):
        disable = getattr(sys.modules.get(module), function, None)
        if disable is not None:
            disable()
