"""Rows of local files, one at a time with their line: JSON lines (plain, .gz, .zst), CSV, TSV, parquet.

Nothing is read beyond what the caller takes, so a `limit` on a file of many gigabytes costs only its first
rows. A broken line is yielded as a `BrokenFile`, not raised: the caller collects all of a file before it complains.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from grpo_cli.data.images import Blob
from grpo_cli.errors import DataError, SetupError
from grpo_cli.lines import UNREADABLE, numbered, open_file
from grpo_verifiers.strict_json import mark, once, problem

JSON_LINES = (".jsonl", ".ndjson", ".json")
TABLES = {".csv": ",", ".tsv": "\t"}
PACKED = (".gz", ".zst")


@dataclass(frozen=True, slots=True)
class Record:
    """One row as it stands in the source; `place` is `file:line`, `folder` that of its file.

    `row` is set for a record made from a run's sample: the id of the row. Its columns were filled when the run was made
    and are not filled again.
    """

    fields: dict[str, Any]
    place: str
    row: str = ""
    folder: Path | None = field(default=None, compare=False)


class WatchedFields(Mapping[str, Any]):
    """The fields of a row; records which of them were looked up, present or not."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self.read: set[str] = set()
        self.reads_all = False

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        self.reads_all = True
        self.read.update(self._fields)
        return iter(self._fields)

    def __len__(self) -> int:
        self.reads_all = True
        self.read.update(self._fields)
        return len(self._fields)


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """One line that is no row."""

    place: str
    why: str


def read_file(path: Path, name: str) -> Iterator[Record | BrokenFile]:
    """The rows of one file; `name` is what places call it.

    Raises:
        DataError: no such file, an unknown kind of file, or a packed or parquet file that cannot be read at all.
        SetupError: no permission, or a package for this kind of file is missing.
    """
    kind = next((s for s in reversed(path.suffixes) if s.lower() not in PACKED), "").lower()
    try:
        if kind in JSON_LINES:
            yield from _json_lines(path, name)
        elif kind in TABLES:
            yield from _table(path, name, TABLES[kind])
        elif kind == ".parquet":
            yield from _parquet(path, name)
        else:
            known = ", ".join((*JSON_LINES[:1], *TABLES, ".parquet"))
            raise DataError(f"unknown kind of file; known: {known} (and .gz, .zst of the text ones)", place=name)
    except PermissionError as err:
        raise SetupError("no permission to read this file", place=name) from err
    except UNREADABLE as err:
        raise DataError(f"cannot be read: {err}", place=name) from err


def _json_lines(path: Path, name: str) -> Iterator[Record | BrokenFile]:
    with open_file(path, name) as stream:
        for number, text in numbered(stream):
            line = text or b""  # without a limit no line is left out
            if number == 1 and line.lstrip().startswith(b"["):
                try:
                    # `mark` marks items that hold a key twice, so that the message can name them
                    value = _json(line + stream.read(), mark)
                except ValueError as err:
                    yield BrokenFile(name, str(err))
                    return
                for count, item in enumerate(value, start=1):
                    place = f"{name}:item {count}"
                    if (repeated := problem(item)) is not None:
                        yield BrokenFile(place, str(repeated))
                    elif isinstance(item, dict):
                        yield Record(item, place, folder=path.parent)
                    else:
                        yield BrokenFile(place, f"expected an object, got {_kind(item)}")
                return
            if line.strip():
                yield json_line(line, f"{name}:{number}", path.parent)


def json_line(line: bytes, place: str, folder: Path | None = None) -> Record | BrokenFile:
    """One line of JSON as a row."""
    try:
        value = _json(line)
    except ValueError as err:
        return BrokenFile(place, str(err))
    return (
        Record(value, place, folder=folder)
        if isinstance(value, dict)
        else BrokenFile(place, f"expected an object, got {_kind(value)}")
    )


def _json(text: bytes, objects: Callable[[list[tuple[str, Any]]], dict[str, Any]] = once) -> Any:
    """JSON as the standard has it.

    Raises:
        ValueError: with a short reason.
    """
    if b"\0" in text:
        raise ValueError("NUL bytes: the file was cut off by a crash, or is no text file")
    try:
        decoded = text.rstrip().decode("utf-8")
        value = json.loads(decoded, parse_constant=_constant, parse_int=_whole, object_pairs_hook=objects)
        if b"\\u" in text and b"\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as err:
        raise ValueError(f"not UTF-8 at byte {err.start + 1}") from err
    except UnicodeEncodeError as err:
        raise ValueError("half of a surrogate pair (\\ud800 to \\udfff), which is no character") from err
    except json.JSONDecodeError as err:
        raise ValueError(f"broken JSON: {_uncapitalised(err.msg)} at column {err.colno}") from err
    except RecursionError as err:
        raise ValueError("nested too deeply") from err
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; write null")


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError as err:
        raise ValueError("a number of more digits than can be read; write it as a string") from err


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def _kind(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _table(path: Path, name: str, delimiter: str) -> Iterator[Record | BrokenFile]:
    csv.field_size_limit(1 << 30)
    with open_file(path, name) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        header: list[str] | None = None
        while True:
            place = f"{name}:{reader.line_num + 1}"
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as err:
                yield BrokenFile(place, f"broken CSV: {err}")
                continue
            if not cells and header is not None:
                continue  # a blank line
            joined, why = "".join(cells), ""
            twice = next((cell for cell in cells if cells.count(cell) > 1), None) if header is None else None
            if "\0" in joined:
                why = "NUL bytes: the file was cut off by a crash, or is no text file"
            elif any("\ud800" <= char <= "\udfff" for char in joined):
                why = "not UTF-8"
            elif twice is not None:
                why = f"the header names `{twice}` twice"
            elif header is not None and len(cells) != len(header):
                why = f"{len(cells)} cells, but the header has {len(header)}"
            if why:
                yield BrokenFile(place, why)
                if header is None:
                    return  # no row can be named without it
            elif header is None:
                header = cells
            else:
                yield Record(dict(zip(header, cells, strict=True)), place, folder=path.parent)


def _parquet(path: Path, name: str) -> Iterator[Record | BrokenFile]:
    import pyarrow as arrow
    from pyarrow.parquet import ParquetFile

    path.open("rb").close()  # the plain errors first: missing, no permission
    number = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for fields in batch.to_pylist():
                    number += 1
                    place = f"{name}:row {number}"
                    try:
                        fields = {str(key): plain(value) for key, value in fields.items()}
                        yield Record(fields, place, folder=path.parent)
                    except ValueError as err:
                        yield BrokenFile(place, str(err))
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as err:
        raise DataError(f"no readable parquet file: {_uncapitalised(str(err))}", place=name) from err


def plain(value: object) -> Any:
    """The value in JSON's own types: dates as ISO text, decimals as text, NaN as null, bytes as UTF-8 text, or as a
    `Blob` where they are none.

    Raises:
        ValueError: the value has no JSON form.
    """
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return Blob(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise ValueError(f"a value of type {type(value).__name__}, which has no JSON form")
