"""The rows that a check reads: all of them up to a number, otherwise an evenly spread sample; the finding states which.

A JSON-lines file is sampled over its whole length and all its lines are counted. Other kinds of files, and hub sets,
are read from the front, because reaching their later rows costs as much as reading them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from grpo_cli.data.files import BrokenFile, Record, json_line
from grpo_cli.data.rows import DataLike, Row, RowLayout, fill_rows, named_sources
from grpo_cli.data.sources import SourceLike, Which, broken_lines, find_file, is_pattern, load_source, mix

HEAD_BYTES = 1 << 18
PART = 250
SPREAD = "spread evenly"
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """The rows read, the number of all rows (a lower bound if not `is_exact`), and how the rows were chosen."""

    rows: list[Row]
    total: int
    is_exact: bool
    how: str
    left_out: list[str] = field(default_factory=list)

    @property
    def is_sample(self) -> bool:
        """Whether some rows were not read."""
        return self.how != "all"


@dataclass(frozen=True, slots=True)
class _Part:
    records: list[Record]
    broken: list[BrokenFile]
    total: int
    is_exact: bool = True
    how: str = "all"


def read_rows(data: DataLike, which: Which, base: Path | None, most: int) -> CheckedRows:
    """At most about `most` rows of one split, filled.

    Raises:
        RecipeError, DataError, SetupError: as `load_rows`, for the rows looked at.
    """
    layout = RowLayout.of(data)
    named = named_sources(data, which)
    each = max(1, most // len(named))
    parts = [_read(source, which, base, key, each) for key, source in named]
    broken = [item for part in parts for item in part.broken]
    if broken:
        raise broken_lines(broken)
    weights = [source.weight for _, source in named]
    filled = fill_rows(mix([part.records for part in parts], weights), layout)
    total = sum(int(part.total * weight + 1e-9) for part, weight in zip(parts, weights, strict=True))
    if filled.unkept or filled.nulls:
        total = round(total * len(filled.rows) / filled.total)
    hows = dict.fromkeys(part.how for part in parts if part.how != "all")
    how = " and ".join(hows) or "all"
    return CheckedRows(filled.rows, total, all(part.is_exact for part in parts), how, filled.left_out())


def _read(source: SourceLike, which: Which, base: Path | None, key: str, most: int) -> _Part:
    if (
        (source.limit is None or source.limit > most)
        and source.source.endswith((".jsonl", ".ndjson"))
        and not is_pattern(source.source)
    ):
        path = find_file(source.source, base, key)
        about = _lines_about(path) - source.skip
        about = about if source.limit is None else min(about, source.limit)
        if about > most:
            return _spread(path, source, most / about)
    if source.limit is not None and source.limit <= most:
        loaded = load_source(source, which, base, key)
        return _Part(loaded.records, loaded.broken, len(loaded.records))
    if source.source.startswith("tasks:"):
        loaded = load_source(source, which, base, key)
        total = len(loaded.records)
        kept = [record for i, record in enumerate(loaded.records) if _falls(i, most / total)]
        return _Part(kept, loaded.broken, total, how=SPREAD if len(kept) < total else "all")
    front = _Front(source.source, most + 1, source.skip, source.weight, source.options)
    loaded = load_source(front, which, base, key)
    more = len(loaded.records) > most
    how = f"the first {most:,}" if more else "all"
    return _Part(loaded.records[:most], loaded.broken, len(loaded.records[:most]), not more, how)


@dataclass(slots=True)
class _Front:
    """A source with its own limit in place of the recipe's."""

    source: str
    limit: int | None
    skip: int
    weight: float
    options: Mapping[str, Any]


def _lines_about(path: Path) -> int:
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    lines = head.count(b"\n")
    if len(head) < HEAD_BYTES or not lines:
        return lines + (not head.endswith(b"\n"))
    return int(path.stat().st_size / len(head) * lines)


def _spread(path: Path, source: SourceLike, share: float) -> _Part:
    records: list[Record] = []
    broken: list[BrokenFile] = []
    stop = None if source.limit is None else source.skip + source.limit
    total = 0
    with path.open("rb") as stream:
        for number, line in islice(enumerate(stream, start=1), source.skip, stop):
            line = line.removeprefix(BOM) if number == 1 else line
            if not line.strip():
                continue
            total += 1
            if _falls(total - 1, share):
                item = json_line(line, f"{source.source}:{number}", path.parent)
                (records if isinstance(item, Record) else broken).append(item)  # type: ignore[arg-type]
    return _Part(records, broken, total, how=SPREAD)


def _falls(index: int, share: float) -> bool:
    """Whether an evenly spread sample of this share holds the row of this index."""
    return share >= 1 or int((index + 1) * share) > int(index * share)


def spread_parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """All rows in parts, each spread evenly over the set, so that a caller that stops early has read a fair sample."""
    stride = max(1, len(rows) // PART)
    for start in range(stride):
        yield rows[start::stride]
