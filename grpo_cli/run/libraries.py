"""What other libraries say: their warnings and log lines go to `train.log`, not over the display."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from grpo_cli.run.folder import RunFolder


class _ToRunLog(logging.Handler):
    def __init__(self, run: RunFolder) -> None:
        super().__init__(logging.INFO)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        self._run.log("lib", f"{record.name}: {record.getMessage()}")


@contextmanager
def libraries_to_log(run: RunFolder) -> Iterator[None]:
    """While inside, warnings (each text once) and log records of every library are lines of the run's log."""
    handler, root, seen = _ToRunLog(run), logging.getLogger(), set[str]()
    loggers = [root, *(logging.getLogger(name) for name in ("transformers", "trl", "accelerate", "datasets", "peft"))]
    kept = [(logger, logger.handlers[:], logger.propagate) for logger in loggers]

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = f"{category.__name__}: {message}"
        if text not in seen:
            seen.add(text)
            run.log("lib", f"{text} ({filename}:{lineno})")

    with warnings.catch_warnings():
        warnings.showwarning = show
        for logger in loggers:
            logger.handlers, logger.propagate = ([handler] if logger is root else []), True
        try:
            yield
        finally:
            for logger, handlers, propagate in kept:
                logger.handlers, logger.propagate = handlers, propagate
