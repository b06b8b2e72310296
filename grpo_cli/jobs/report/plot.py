"""Figures as panels and traces, which `assets/plot.js` draws as SVG.

Of a run longer than `MOST_POINTS` steps means of neighbouring steps are drawn, and the caption says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from grpo_cli.findings.run_data import RunData
from grpo_cli.statistics.step import mean

MOST_POINTS = 1000
DIGITS = 5
"""Significant digits of a number on the page; `metrics.jsonl` has them all."""
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7A00", "#7F7F7F")
"""Wong's colours, which people with any colour vision tell apart."""

Trace = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One pair of axes, `height` in pixels; a half one stands beside the next where the page is wide. `cap` is a dashed line."""

    y: str = ""
    x: str = "step"
    title: str = ""
    height: int = 260
    half: bool = False
    share: bool = False
    log: bool = False
    from_zero: bool = False
    cap: float | None = None


@dataclass(frozen=True)
class Figure:
    """One picture: traces (each names its panel), what it shows in a sentence, and what a reader should look for."""

    id: str
    title: str
    caption: str
    traces: list[Trace]
    panels: Sequence[Panel] = (Panel(),)

    @property
    def height(self) -> int:
        """Pixels that it will take about, so that the page does not jump when it is drawn."""
        rows = sum((panel.height + 40) / (2 if panel.half else 1) for panel in self.panels)
        return round(rows + 50)

    def as_json(self, axes: dict[tuple[Any, ...], int]) -> dict[str, Any]:
        """What the page hands to its script; `axes` collects every list of x values once, and traces name them by number."""
        traces = [
            {key: _short(value) for key, value in trace.items()}
            | {"x": axes.setdefault(tuple(trace["x"]), len(axes))}
            for trace in self.traces
        ]
        return {"id": self.id, "traces": traces, "panels": [asdict(panel) for panel in self.panels]}

    def renamed(self, id: str) -> Figure:
        """The same under another id."""
        return replace(self, id=id)


def curve(
    x: list[Any],
    y: list[Any],
    name: str,
    colour: str,
    dash: str = "solid",
    *,
    width: float = 1.6,
    mode: str | None = None,
    group: str | None = None,
) -> Trace:
    """A line with its points, where they are few."""
    trace: Trace = {
        "type": "line",
        "x": x,
        "y": y,
        "name": name,
        "mode": mode or ("lines+markers" if len(x) <= 60 else "lines"),
        "line": {"color": colour, "dash": dash, "width": width},
    }
    return trace | ({"legendgroup": group} if group else {})


def band(x: list[Any], low: list[Any], high: list[Any], colour: str, name: str) -> Trace:
    """The area between two curves."""
    return {"type": "band", "x": x, "low": low, "high": high, "name": name, "line": {"color": colour}}


def area(x: list[Any], y: list[Any], name: str, colour: str) -> Trace:
    """A layer on top of the earlier ones of its panel."""
    return {"type": "area", "x": x, "y": y, "name": name, "line": {"color": colour}}


def thin(steps: Sequence[int], values: Sequence[float | None]) -> tuple[list[int], list[float | None]]:
    """All points, or means of as many neighbours as needed."""
    size = -(-len(steps) // MOST_POINTS) or 1
    known = numbers(values)
    if size == 1:
        return list(steps), known
    joined = [mean([v for v in known[i : i + size] if v is not None]) for i in range(0, len(known), size)]
    return list(steps[::size]), joined


def numbers(values: Sequence[Any]) -> list[float | None]:
    """Finite numbers; JSON knows no others."""
    return [v if isinstance(v, int | float) and math.isfinite(v) else None for v in values]


def two_panels(upper: str, lower: str, cap: float | None = None) -> list[Panel]:
    """A tall panel above a low one."""
    return [
        Panel(upper, x="", height=230, from_zero=True, cap=cap),
        Panel(lower, height=150, from_zero=True),
    ]


def cell(title: str, cells: int, *, log: bool = False) -> Panel:
    """One of several small panels."""
    return Panel(title=title, height=190, half=cells > 1, log=log, from_zero=not log)


def into_panel(trace: Trace, i: int) -> Trace:
    """The trace moved to panel i."""
    return trace | {"panel": i}


def thinned_note(runs: Sequence[RunData]) -> str:
    """Says when points are means."""
    longest = max((len(run.steps) for run in runs), default=0)
    size = -(-longest // MOST_POINTS)
    return f" Points are means of {size} steps." if size > 1 else ""


def _short(value: object) -> object:
    """Numbers with as many digits as a reader could tell apart."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    return [_short(item) for item in value] if isinstance(value, list | tuple) else value
