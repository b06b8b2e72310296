"""Our own files of lines. They survive `kill -9`: a line is whole, or it is the torn last one, which readers skip."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from grpo_cli.lines.numbered import whole
from grpo_cli.run.records import SampleRecord, dump_line, parse_line


def append(path: Path, text: str) -> None:
    """Add whole lines in one write; a torn tail left by an earlier death is cut off first."""
    data = text.encode("utf-8", "surrogatepass")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _cut_torn_tail(fd)
        while data:  # a disk that fills up may take a part; the rest raises on the next turn
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def sync(path: Path) -> None:
    """Return when the disk has a file, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _cut_torn_tail(fd: int) -> None:
    end = os.lseek(fd, 0, os.SEEK_END)
    if end == 0 or os.pread(fd, 1, end - 1) == b"\n":
        return
    place = end
    while place > 0:
        start = max(0, place - 65536)
        found = os.pread(fd, place - start, start).rfind(b"\n")
        if found >= 0:
            os.ftruncate(fd, start + found + 1)
            return
        place = start
    os.ftruncate(fd, 0)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of ours, in order; nothing if it is missing, and a torn last line is skipped.

    Raises:
        ValueError: a line before the last is not a JSON object.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for number, raw in enumerate(whole(file), 1):
            try:
                yield parse_line(raw.decode("utf-8", "surrogatepass"))
            except ValueError as err:
                raise ValueError(f"{path}:{number}: {err}") from err


def replace(path: Path, text: str | Iterable[str]) -> None:
    """Write a file beside its place and rename it there, so that a reader sees the old or the new, never a part."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("w", encoding="utf-8", errors="surrogatepass") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def write_records(path: Path, records: Iterable[SampleRecord]) -> None:
    """One line a sample, as `grpo verify` reads them; the file is whole or as it was."""
    replace(path, (dump_line(record.as_json()) for record in records))
