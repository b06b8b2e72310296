"""Our own files of lines. They survive `kill -9`: only the last line can be incomplete, and readers skip it.

`append` cuts a torn tail off before it writes; `replace` writes a new file beside the old one and renames it. `read` yields the
lines that can be read. The rest refuses places that cannot be written, before work is spent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from grpo_cli.errors import SetupError
from grpo_cli.lines import whole
from grpo_cli.run.records import SampleRecord, dump_line, parse_line
from grpo_cli.text import real_path

T = TypeVar("T")


def append(path: Path, text: str) -> None:
    """Add whole lines in one write; a torn tail left by an earlier death is cut off first."""
    data = text.encode("utf-8", "surrogatepass")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        kept = end = os.lseek(fd, 0, os.SEEK_END)
        while kept > 0 and os.pread(fd, 1, kept - 1) != b"\n":
            start = max(0, kept - 65536)
            kept = start + os.pread(fd, kept - start, start).rfind(b"\n") + 1
        if kept < end:
            os.ftruncate(fd, kept)
        while data:  # on a nearly full disk only a part may be written; the next iteration then raises
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


def read(path: Path, made: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """The objects of a file of ours, converted, in order; empty if the file is missing. An incomplete last line is
    skipped.

    Raises:
        ValueError: a line before the last is not a JSON object, or nothing can be made of it.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for number, raw in enumerate(whole(file), 1):
            try:
                yield made(parse_line(raw.decode("utf-8", "surrogatepass")))
            except ValueError as err:
                raise ValueError(f"{path}:{number}: {err}") from err


def _is_stream(path: Path) -> bool:
    """Whether the path is a device or a pipe, which must not be replaced by renaming: root could overwrite a device."""
    return path.absolute().is_relative_to("/dev") or (path.exists() and not (path.is_file() or path.is_dir()))


def refuse_pipe(path: Path) -> None:
    """Raises OSError where a pipe or a device lies in the place of a file: opening it may wait for ever."""
    if _is_stream(path):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def replace(path: Path, text: str | Iterable[str]) -> None:
    """Write a file beside its place and rename it there, so that a reader sees the old or the new, never a part.

    A link is followed; a pipe or a device, such as `/dev/stdout`, is written to as it stands.
    """
    if _is_stream(path):
        with path.open("w", encoding="utf-8", errors="surrogatepass") as file:
            file.writelines([text] if isinstance(text, str) else text)
        return
    path = real_path(path) if path.is_symlink() else path
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


def refuse_unwritable(path: Path | None) -> None:
    """Check that a file can be written there, before hours are spent on its content; None is not checked.

    Raises:
        SetupError: the folder is missing or closed, or a folder has this name.
    """
    if path is None:
        return
    folder, why = path.parent, ""
    if not folder.is_dir():
        why = f"there is no folder `{folder}`"
    elif path.is_dir():
        why = "it is a folder"
    elif not os.access(path if path.exists() else folder, os.W_OK) or not (
        _is_stream(path) or os.access(folder, os.W_OK)
    ):
        why = "permission denied"
    if why:
        raise SetupError(f"`{path}` cannot be written: {why}", hint="set `--out`")


def refuse_closed(folder: Path, hint: str = "give another folder") -> None:
    """Check that this folder can be created and written to, before a model is loaded.

    Raises:
        SetupError: it may not be made or written to.
    """
    whole_path = folder.absolute()
    there = next(path for path in (whole_path, *whole_path.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = "permission denied" if there.is_dir() else f"`{there}` is a file"
        raise SetupError(f"cannot write to `{folder}`: {why}", hint=hint)


def set_aside(path: Path) -> Path | None:
    """Rename a file to the first free `NAME-N`, so that another may take its place; None where there is none."""
    if not path.exists():
        return None
    number = 1
    while (aside := path.with_stem(f"{path.stem}-{number}")).exists():
        number += 1
    return path.rename(aside)


def open_as(like: Path, folder: Path) -> None:
    """Give the files of a folder the read permissions of `like`, a file of ours: safetensors ignores the umask and lets
    only the owner read."""
    wanted = stat.S_IMODE(like.stat().st_mode)
    for file in folder.iterdir():
        mode = stat.S_IMODE(file.stat().st_mode)
        if file.is_file() and mode | wanted != mode:
            file.chmod(mode | wanted)


def write_records(path: Path, records: Iterable[SampleRecord]) -> None:
    """One line a sample, as `grpo verify` reads them; the file is whole or as it was."""
    replace(path, (dump_line(record.as_json()) for record in records))
