"""The whole run as curves: binned into what memory keeps, then into the columns of a screen. A bin is a mean over its steps.

A rate is drawn on 0 to 1, so that the same height means the same in every run and at every moment of one; other numbers
are drawn from 0 to their largest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeGuard

from grpo_cli.run.info import Metrics
from grpo_cli.text import BLOCKS

MOST_BINS = 512
NOT_DRAWN = ("verify/", "group/hist/", "drawn/")
"""Prefixes of metric families with many keys, for which no curves are drawn."""

RATES = ("think", "truncated", "no_answer", "group/signal", "pass@", "eval/", "unique_answers")

Curve = Sequence[float | None]


class Curves:
    """Sums and counts of each metric in bins of equally many steps; bins are joined in pairs when they become too many."""

    def __init__(self, most: int = MOST_BINS) -> None:
        self._most, self._size, self._steps = most, 1, 0
        self._sums: dict[str, list[tuple[float, int]]] = {}

    def add(self, metrics: Metrics) -> None:
        """The metrics of the next step."""
        if self._steps // self._size >= self._most:
            self._size *= 2
            for bins in self._sums.values():
                bins.extend([(0.0, 0)] * (len(bins) % 2))
                bins[:] = [(a + c, b + d) for (a, b), (c, d) in zip(bins[::2], bins[1::2], strict=True)]
        at = self._steps // self._size
        self._steps += 1
        for key, value in metrics.items():
            if isinstance(value, int | float) and math.isfinite(value) and not key.startswith(NOT_DRAWN):
                bins = self._sums.setdefault(key, [])
                bins.extend([(0.0, 0)] * (at + 1 - len(bins)))
                total, count = bins[at]
                bins[at] = (total + value, count + 1)

    def copy(self) -> Curves:
        """A copy of the curves, which later steps of this object do not change."""
        other = Curves(self._most)
        other._size, other._steps = self._size, self._steps
        other._sums = {key: list(bins) for key, bins in self._sums.items()}
        return other

    def of(self, key: str) -> list[float | None]:
        """A metric from the first step to the last; None where no step of a bin measured it."""
        bins = self._sums.get(key, [])
        gap = [None] * (-(-self._steps // self._size) - len(bins))
        return [total / count if count else None for total, count in bins] + gap


def columns_of(curve: Curve, width: int, steps: int = 0) -> list[float | None]:
    """A curve in at most `width` columns. Where a run of `steps` fits more than once, each step takes as many as fit."""
    curve = [value if is_drawn(value) else None for value in curve]
    if width <= 0 or not curve:
        return []
    if len(curve) <= width:
        each = max(1, width // max(steps, len(curve)))
        return [value for value in curve for _ in range(each)]
    means: list[float | None] = []
    for a, b in pairwise(i * len(curve) // width for i in range(width + 1)):
        known = [v for v in curve[a:b] if v is not None]
        means.append(math.fsum(known) / len(known) if known else None)
    return means


def is_drawn(value: float | None) -> TypeGuard[float]:
    """Whether the value was measured and is finite."""
    return value is not None and math.isfinite(value)


def bounds(key: str, values: Curve) -> tuple[float, float]:
    """The values at the foot and at the top of a drawing."""
    known = [v for v in values if is_drawn(v)]
    low, high = min([0.0, *known]), max([0.0, *known])
    is_rate = key.startswith(RATES) or (key.startswith("reward/") and key.endswith("/mean"))
    return low, max(high, 1.0) if is_rate else high


def spark_of(key: str, curve: Curve, width: int, steps: int = 0) -> str:
    """The whole curve as one line of blocks; nothing of a metric that was always 0."""
    columns = columns_of(curve, width, steps)
    low, high = bounds(key, curve)
    if not any(v is not None for v in columns) or high <= low:
        return ""
    return "".join(" " if v is None else BLOCKS[_level(v, low, high, 8) - 1] for v in columns)


def _level(value: float, low: float, high: float, levels: int) -> int:
    """1 to `levels`."""
    share = min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.0
    return max(1, round(share * levels))


def area(columns: Curve, height: int, low: float, high: float) -> list[str]:
    """A filled curve as `height` rows, the top first; a gap is blank."""
    levels = [0 if v is None else _level(v, low, high, 8 * height) for v in columns]
    rows = []
    for row in range(height - 1, -1, -1):
        parts = (min(max(level - 8 * row, 0), 8) for level in levels)
        rows.append("".join(BLOCKS[part - 1] if part else " " for part in parts))
    return rows


def points_of(evaluations: Sequence[Metrics], key: str, first: int, last: int, columns: int) -> Mapping[int, float]:
    """Held-out scores by the column of their step; the last one wins where two share a column."""
    span = max(last - first, 1)
    found: dict[int, float] = {}
    for metrics in evaluations:
        value, step = metrics.get(key), metrics.get("step")
        if is_drawn(value) and step is not None and columns > 0:
            share = min(max((step - first) / span, 0.0), 1.0)
            found[round(share * (columns - 1))] = value
    return found
