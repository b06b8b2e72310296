"""Reading lines, whoever wrote them: rows of data, samples to verify, records of a run.

Files are plain, gzip or zstd by the ending of their name; errors are the same for all three. A line ends at its newline
alone: `splitlines` would also cut at signs that JSON leaves inside a string.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from grpo_cli.errors import SetupError

UNREADABLE = (OSError, EOFError, zlib.error)
"""Exceptions of reading a file that is broken or truncated."""


def open_file(path: Path, name: str) -> IO[bytes]:
    """A binary reader; `name` is what an error calls the file. Reading may raise what `UNREADABLE` lists.

    Raises:
        SetupError: a `.zst` file, and the package that reads those is missing.
        OSError: it cannot be opened.
    """
    ending = path.suffix.lower()
    if ending == ".gz":
        import gzip

        return cast(IO[bytes], gzip.open(path))
    if ending == ".zst":
        try:
            import zstandard  # noqa: F401
        except ImportError as err:
            raise SetupError(
                "reading .zst needs the package `zstandard`", place=name, hint="pip install 'grpo-cli[zstd]'"
            ) from err
        stream: IO[bytes] = io.BufferedReader(_ZstdRaw(path), 1 << 18)
        return stream
    return path.open("rb")


class _ZstdRaw(io.RawIOBase):
    """All frames of a zstd file. The package's own reader ends after the first, and takes a frame that is cut off for whole.

    Its errors are OSErrors like everyone else's.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._frame: Any = None
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        import zstandard

        while not self._ready:
            if not (packed := self._file.read(1 << 15)):
                if self._frame is not None:
                    raise EOFError("the file is cut off")
                return 0
            while packed:
                self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    self._ready += self._frame.decompress(packed)
                except zstandard.ZstdError as err:
                    raise OSError(str(err)) from err
                # between two frames there is none; what follows the end of one begins the next
                packed = self._frame.unused_data if self._frame.eof else b""
                self._frame = None if self._frame.eof else self._frame
        data, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


BOM = b"\xef\xbb\xbf"


class BrokenText(bytes):
    """Takes the place of a line that cannot be read; holds the reason."""


class NumberedLine(NamedTuple):
    """One line with its number, from 1, and as it stands; `text` is None where it was too long to hold, and `BrokenText`
    where a reader could make no line."""

    number: int
    text: bytes | None


def numbered(stream: IO[bytes], most_bytes: int | None = None) -> Iterator[NumberedLine]:
    """Every line, the last also without its newline; the mark of UTF-8 before the first is left out.

    A line of more than `most_bytes` is returned as None and never held whole. Nothing is read beyond the line given.
    """
    number = 0
    while text := stream.readline() if most_bytes is None else stream.readline(most_bytes + 1):
        number += 1
        if most_bytes is not None and len(text) > most_bytes and not text.endswith(b"\n"):
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
            yield NumberedLine(number, None)
            continue
        yield NumberedLine(number, text.removeprefix(BOM) if number == 1 else text)


def whole(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines that end in a newline, with it; a torn last one is left."""
    for line in stream:
        if not line.endswith(b"\n"):
            return
        yield line
