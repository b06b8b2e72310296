"""The lines that `grpo verify` reads, of a file, gzip, zstd or stdin. A line longer than the cap is given as None, never held whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO

from grpo_cli.errors import DataError, UsageError
from grpo_cli.lines.numbered import NumberedLine, numbered
from grpo_cli.lines.packed import UNREADABLE, open_file

MOST_BYTES = 64 * 1024 * 1024


def read(source: str, most_bytes: int = MOST_BYTES) -> Iterator[NumberedLine]:
    """The lines of `source` that are not blank.

    Raises:
        UsageError: `-` and stdin is a terminal.
        DataError: the file cannot be read or decompressed.
    """
    name = "<stdin>" if source == "-" else source
    try:
        file = open_input(source)
        with nullcontext(file) if source == "-" else file:  # stdin is not ours to close
            for number, raw in numbered(file, most_bytes):
                text = None if raw is None else raw.strip(b" \t\r\n")
                if text != b"":
                    yield NumberedLine(number, text)
    except UNREADABLE as err:
        if isinstance(err, BrokenPipeError):
            raise
        why = getattr(err, "strerror", None) or str(err) or type(err).__name__
        raise DataError(f"cannot be read: {why.lower()}", place=name) from err


def open_input(source: str) -> IO[bytes]:
    """A binary reader of a path or `-`; a packed file is unpacked as it is read.

    Raises:
        UsageError: `-`, and stdin is a terminal.
        DataError: a folder, or no such file.
    """
    if source == "-":
        if sys.stdin.isatty():
            raise UsageError(
                "`-` reads lines from stdin, and stdin is a terminal", hint="pipe a file in, or name one"
            )
        return sys.stdin.buffer
    path = Path(source)
    if path.is_dir():
        raise DataError(
            "is a folder", place=source, hint=f"name files in it, such as `{source.rstrip('/')}/*.jsonl`"
        )
    if not path.exists():
        raise DataError("no such file", place=source)
    return open_file(path, source)
