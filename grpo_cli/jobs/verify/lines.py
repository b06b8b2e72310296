"""Numbered lines of a file, gzip, zstd or stdin. A line longer than the cap is given as None, never held whole."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, NamedTuple

from grpo_cli.errors import DataError, SetupError, UsageError

MOST_BYTES = 64 * 1024 * 1024


class Line(NamedTuple):
    """One line without its end; `text` is None where it was too long to hold."""

    number: int
    text: bytes | None


def read(source: str, most_bytes: int = MOST_BYTES) -> Iterator[Line]:
    """The lines of `source` that are not blank.

    Raises:
        UsageError: `-` and stdin is a terminal.
        DataError: the file cannot be read or decompressed.
    """
    name = "<stdin>" if source == "-" else source
    try:
        file = open_input(source)
        with nullcontext(file) if source == "-" else file:  # stdin is not ours to close
            yield from _lines(file, most_bytes)
    except (OSError, EOFError) as err:
        if isinstance(err, BrokenPipeError):
            raise
        why = getattr(err, "strerror", None) or str(err) or type(err).__name__
        raise DataError(f"cannot be read: {why.lower()}", place=name) from err


def open_input(source: str) -> IO[bytes]:
    """A binary reader of a path or `-`."""
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
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".zst":
        return _zstd(path)
    return path.open("rb")


def _zstd(path: Path) -> IO[bytes]:
    try:
        import zstandard
    except ModuleNotFoundError as err:
        raise SetupError(
            "reading `.zst` needs the package zstandard", hint="pip install 'grpo-cli[zstd]'"
        ) from err
    opened: IO[bytes] = zstandard.open(path, "rb")
    return opened


def _lines(file: IO[bytes], most: int) -> Iterator[Line]:
    number = 0
    while text := file.readline(most + 1):
        number += 1
        if len(text) > most and not text.endswith(b"\n"):
            _skip(file)
            yield Line(number, None)
            continue
        if number == 1:
            text = text.removeprefix(b"\xef\xbb\xbf")
        text = text.strip(b" \t\r\n")
        if text:
            yield Line(number, text)


def _skip(file: IO[bytes]) -> None:
    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
        pass
