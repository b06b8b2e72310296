"""Success by kind of row: pass@1 of the rows that agree in a column.

A column is asked for by name; without one, `kind` and `difficulty` are taken where the rows have few of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.errors import UsageError
from grpo_cli.measure.evaluation import MeasuredSamples, pass_1_of
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.episodes import turns_by_outcome
from grpo_cli.statistics.estimate import Interval
from grpo_cli.text import DASH, number, visible

USUAL = ("kind", "difficulty")
MOST_UNASKED = 12
"""Kinds up to which a column that nobody asked for is shown."""
MOST_SHOWN = 20
"""Kinds that the text shows of one column; the object has all."""
NONE = DASH
"""The kind of rows that lack the column."""


@dataclass(frozen=True)
class RowKind:
    """The rows with one value of a column; `pass_1` is over samples with a primary verdict, `rows` counts all, `without_verdict` the samples
    on which some verifier failed."""

    pass_1: Interval
    rows: int
    without_verdict: int
    turns: dict[str, float | int | None]

    def as_json(self) -> dict[str, Any]:
        """Its entry in `--json`."""
        out = self.pass_1.as_json() | {"rows": self.rows, "without_verdict": self.without_verdict}
        return {**out, **self.turns}


Kinds = Mapping[str, Mapping[str, RowKind]]
"""By column, then by value as text."""


def columns_of(rows: Sequence[Mapping[str, Any]], asked: Sequence[str]) -> list[str]:
    """The columns to group rows by, of which the fields are given.

    Raises:
        UsageError: no row has one that was asked for.
    """
    there = sorted({name for row in rows for name in row})
    for name in asked:
        if name not in there:
            raise UsageError(f"no held-out row has a column `{name}`", hint=f"they have {', '.join(there) or 'none'}")
    if asked:
        return list(dict.fromkeys(asked))
    return [name for name in USUAL if 1 < len({_value(row.get(name)) for row in rows}) <= MOST_UNASKED]


def by_kind(measured: MeasuredSamples, asked: Sequence[str]) -> Kinds:
    """The kinds of each column to group by, in the order of their values."""
    out: dict[str, dict[str, RowKind]] = {}
    for column in columns_of([record.fields for record in measured.records], asked):
        of: dict[str, list[SampleRecord]] = {}
        for record in measured.records:
            of.setdefault(_value(record.fields.get(column)), []).append(record)
        out[column] = {value: _kind(of[value]) for value in sorted(of, key=_in_order)}
    return out


def lines_of(kinds: Kinds) -> list[str]:
    """What a person reads: a line a kind, under the name of its column."""
    lines: list[str] = []
    for column, found in kinds.items():
        shown = list(found.items())[:MOST_SHOWN]
        width = max(len(visible(value)[:24]) for value, _ in shown)
        lines += ["", f"by `{column}`"]
        lines += [f"  {visible(value)[:24]:<{width}}  {_said(kind)}" for value, kind in shown]
        if len(found) > len(shown):
            lines.append(f"  … {len(found) - len(shown)} more, in `--json`")
    return lines


def _kind(records: Sequence[SampleRecord]) -> RowKind:
    return RowKind(
        pass_1_of(records),
        len({record.row for record in records}),
        sum(record.is_failed for record in records),
        turns_by_outcome(records),
    )


def _said(kind: RowKind) -> str:
    one = kind.pass_1
    has_score = math.isfinite(one.mean)
    parts = [f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" if has_score else DASH, f"n {one.n}"]
    if kind.turns:
        parts.append(f"turns right {number(kind.turns['turns/right'])} wrong {number(kind.turns['turns/wrong'])}")
    if kind.without_verdict:
        parts.append(f"without verdict {kind.without_verdict}")
    return "   ".join(parts)


def _value(value: object) -> str:
    """A column's value as text; numbers that are equal are one kind."""
    if value is None:
        return NONE
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str, sort_keys=True)


def _in_order(value: str) -> tuple[bool, bool, float, str]:
    """Numbers by size, then words; rows that lack the column last."""
    try:
        size = float(value)
    except ValueError:
        size = math.nan
    is_number = math.isfinite(size)
    return value == NONE, not is_number, size if is_number else 0.0, value
