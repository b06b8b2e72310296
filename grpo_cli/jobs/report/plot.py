"""Traces and layouts for plotly as plain dicts. Labels are escaped: plotly reads markup in them.

Of a run longer than `MOST_POINTS` steps means of neighbouring steps are drawn, and the caption says so.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_cli.findings.run_data import RunData
from grpo_cli.statistics.step import mean

MOST_POINTS = 2000
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7A00", "#7F7F7F")
"""Wong's colours, which people with any colour vision tell apart."""

Trace = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One picture: plotly traces and layout, what it shows in a sentence, and what a reader should look for."""

    id: str
    title: str
    caption: str
    traces: list[Trace]
    layout: dict[str, Any] = field(default_factory=dict)
    height: int = 320

    def as_json(self) -> dict[str, Any]:
        """What the page hands to plotly."""
        return {"id": self.id, "data": self.traces, "layout": self.layout, "height": self.height}

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
        "type": "scatter",
        "x": x,
        "y": y,
        "name": html.escape(name),
        "mode": mode or ("lines+markers" if len(x) <= 60 else "lines"),
        "line": {"color": colour, "dash": dash, "width": width},
        "marker": {"size": 4},
    }
    return trace | ({"legendgroup": html.escape(group)} if group else {})


def band(x: list[Any], low: list[Any], high: list[Any], colour: str, name: str) -> list[Trace]:
    """The area between two curves."""
    edge = {
        "type": "scatter",
        "x": x,
        "mode": "lines",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return [
        edge | {"y": low, "name": f"{name}, low"},
        edge | {"y": high, "name": f"{name}, high", "fill": "tonexty", "fillcolor": faint(colour)},
    ]


def thin(steps: Sequence[int], values: Sequence[float | None]) -> tuple[list[int], list[float | None]]:
    """All points, or means of as many neighbours as needed."""
    size = -(-len(steps) // MOST_POINTS) or 1
    known = numbers(values)
    if size == 1:
        return list(steps), known
    joined = [mean([v for v in known[i : i + size] if v is not None]) for i in range(0, len(known), size)]
    return list(steps[::size]), joined


def numbers(values: Sequence[Any]) -> list[float | None]:
    """Finite numbers; JSON and plotly know no others."""
    return [v if isinstance(v, int | float) and math.isfinite(v) else None for v in values]


def axes(
    x: str, y: str, *, share: bool = False, log: bool = False, from_zero: bool = False
) -> dict[str, Any]:
    """One pair of axes."""
    axis: dict[str, Any] = (
        {"title": {"text": y}}
        | ({"tickformat": ".0%", "rangemode": "tozero"} if share else {})
        | ({"type": "log"} if log else {})
        | ({"rangemode": "tozero"} if from_zero else {})
    )
    return {"xaxis": {"title": {"text": x}}, "yaxis": axis, "legend": {"orientation": "h", "y": 1.12}}


def two_axes(upper: str, lower: str) -> dict[str, Any]:
    """Two plots over one x axis."""
    return {
        "yaxis": {"domain": [0.42, 1], "title": {"text": upper}, "rangemode": "tozero"},
        "yaxis2": {"domain": [0, 0.32], "title": {"text": lower}, "rangemode": "tozero"}, "legend": {"orientation": "h", "y": 1.1},
    }  # fmt: skip


def grid() -> dict[str, Any]:
    """An empty grid of small plots, two wide."""
    return {"annotations": [], "showlegend": False, "legend": {"orientation": "h", "y": 1.15}}


def grid_height(cells: int) -> int:
    """Its height in pixels."""
    return 60 + 190 * -(-cells // 2)


def put_cell(layout: dict[str, Any], i: int, cells: int, title: str, *, log: bool = False) -> None:
    """Place subplot i of a grid two wide, with its title above."""
    rows, columns = -(-cells // 2), 2 if cells > 1 else 1
    row, column = divmod(i, 2)
    wide, tall = 1 / columns, 1 / rows
    x0, x1 = (
        column * wide + (0.03 if column else 0),
        (column + 1) * wide - (0.03 if columns > 1 and not column else 0),
    )
    top = 1 - row * tall
    number = "" if i == 0 else str(i + 1)
    layout[f"xaxis{number}"] = {"domain": [x0, x1], "anchor": f"y{number}"}
    layout[f"yaxis{number}"] = {
        "domain": [top - tall + 0.11 * tall + 0.03, top - 0.09 * tall],
        "rangemode": "normal" if log else "tozero",
        "anchor": f"x{number}",
    } | ({"type": "log"} if log else {})
    layout["annotations"].append(
        {
            "text": html.escape(title),
            "x": x0,
            "y": top,
            "xref": "paper",
            "yref": "paper",
            "showarrow": False,
            "xanchor": "left",
            "yanchor": "top",
        }
    )


def into_cell(traces: list[Trace], i: int) -> list[Trace]:
    """Traces moved to cell i."""
    number = "" if i == 0 else str(i + 1)
    return [trace | {"xaxis": f"x{number}", "yaxis": f"y{number}"} for trace in traces]


def faint(colour: str) -> str:
    """A colour for areas."""
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({r},{g},{b},0.18)"


def thinned_note(runs: Sequence[RunData]) -> str:
    """Says when points are means."""
    longest = max((len(run.steps) for run in runs), default=0)
    size = -(-longest // MOST_POINTS)
    return f" Points are means of {size} steps." if size > 1 else ""
