"""Figures as panels and traces, which `assets/plot.js` draws as SVG.

The first half draws the figures of several arms: held-out scores with their bands over seeds, and metrics laid over each other.
The second half is what every figure is made of: `Figure`, `Panel`, curves, bands and areas. Of a run longer than `MOST_POINTS`
steps means of neighbouring steps are drawn, and the caption says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from grpo_cli.findings.run_data import Arm, RunData
from grpo_cli.statistics.step import mean

# Figures over all runs: arms in colours, seeds as bands, the placebo grey and dashed.


def held_out(arms: Sequence[Arm]) -> Figure | None:
    """Figure 1 of every paper: held-out score by step with its 95 % band, and the untrained model as a line."""
    traces: list[Trace] = []
    for i, arm in enumerate(arms):
        colour, dash = arm_colour(i, arm)
        for run in arm.runs:
            points = [m for m in run.evaluations if m.get("eval/pass@1") is not None]
            if not points:
                continue
            steps = [m.get("step") for m in points]
            low, high = (numbers([m.get(f"eval/pass@1/{end}") for m in points]) for end in ("low", "high"))
            values = numbers([m["eval/pass@1"] for m in points])
            if len(arm.runs) == 1 and all(v is not None for v in (*low, *high)):
                traces.append(band(steps, low, high, colour, "95 % interval"))
            name, width = run_label(arm, run), 0.8 if len(arm.runs) > 1 else 1.6
            traces.append(curve(steps, values, name, colour, dash, mode="lines+markers", width=width, group=arm.label))
            if len(arms) == 1 and len(arm.runs) == 1:
                traces.append(curve([steps[0], steps[-1]], [values[0]] * 2, "before training", "#888888", "dot"))
        if len(arm.runs) > 1:
            traces += seed_band(arm, "eval/pass@1", colour, dash, from_evaluations=True)
    if not traces:
        return None
    counts = {int(m["eval/n"]) for arm in arms for run in arm.runs for m in run.evaluations if m.get("eval/n")}
    n = " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""
    says = "Bands: 95 % interval clustered by prompt."
    if any(len(arm.runs) > 1 for arm in arms):
        says += " Arms of several seeds: thick their mean, band from the smallest to the largest, thin single runs."
    if sum(len(arm.runs) for arm in arms) == 1:
        says += " Dotted: the model before training."
    caption = f"Held-out pass@1, sampled{f', {n} prompts' if n else ''}. {says}"
    return Figure("held-out", "Held-out score", caption, traces, [Panel("pass@1", share=True)])


def overlay(
    arms: Sequence[Arm], key: str, id: str, title: str, caption: str, y: str, *, share: bool = False, log: bool = False
) -> Figure | None:
    """One metric of all arms over the steps: single runs thin, the mean over seeds thick with the range as a band."""
    traces: list[Trace] = []
    for i, arm in enumerate(arms):
        colour, dash = arm_colour(i, arm)
        many = len(arm.runs) > 1
        for run in arm.runs:
            one = run_curve(run, key, run_label(arm, run), colour, dash, width=0.8 if many else 1.6, group=arm.label)
            if any(v is not None for v in one["y"]):
                traces.append(one)
        if many:
            traces += seed_band(arm, key, colour, dash)
    if not traces:
        return None
    note = thinned_note([run for arm in arms for run in arm.runs])
    return Figure(id, title, caption + note, traces, [Panel(y, share=share, log=log)])


def seed_band(arm: Arm, key: str, colour: str, dash: str, *, from_evaluations: bool = False) -> list[Trace]:
    """Mean over seeds at the steps that all have, with the range from the smallest to the largest."""
    tables: list[dict[int, float]] = [
        {
            int(m.get("step") or 0): m[key]
            for m in (run.evaluations if from_evaluations else run.steps)
            if m.get(key) is not None
        }
        for run in arm.runs
    ]
    seeds = len({run.info.seed for run in arm.runs})
    steps = sorted(set.intersection(*(set(t) for t in tables))) if tables else []
    if not steps:
        return []
    columns = [[t[s] for t in tables] for s in steps]
    x, low = thin(steps, [min(c) for c in columns])
    high, middle = thin(steps, [max(c) for c in columns])[1], thin(steps, [mean(c) for c in columns])[1]
    name = f"{arm.label}, mean of {len(tables)} {'seeds' if seeds == len(tables) else 'runs'}"
    spread = band(x, low, high, colour, f"{arm.label}, range")
    return [spread, curve(x, middle, name, colour, dash, width=3, group=arm.label)]


PLACEBOS = {"random": ("#888888", "dash"), "shuffled": ("#6b7a8f", "dot"), "format_only": ("#a08a6b", "dashdot")}


def arm_colour(i: int, arm: Arm) -> tuple[str, str]:
    """Placebos are dull and broken, each in its own way."""
    if not arm.is_placebo:
        return PALETTE[i % len(PALETTE)], "solid"
    return PLACEBOS.get(str(arm.runs[0].recipe.get("train.control")), PLACEBOS["random"])


def run_label(arm: Arm, run: RunData) -> str:
    return arm.label if len(arm.runs) == 1 else f"{arm.label}, {run.name}"


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
            {key: _short(value) for key, value in trace.items()} | {"x": axes.setdefault(tuple(trace["x"]), len(axes))}
            for trace in self.traces
        ]
        return {"id": self.id, "traces": traces, "panels": [asdict(panel) for panel in self.panels]}


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
    return [Panel(upper, x="", height=230, from_zero=True, cap=cap), Panel(lower, height=150, from_zero=True)]


def cell(title: str, cells: int, *, log: bool = False) -> Panel:
    """One of several small panels."""
    return Panel(title=title, height=190, half=cells > 1, log=log, from_zero=not log)


def run_curve(
    run: RunData,
    key: str,
    name: str,
    colour: str,
    dash: str = "solid",
    *,
    panel: int | None = None,
    width: float = 1.6,
    group: str | None = None,
) -> Trace:
    """A metric of a run over its steps, in the panel of this number."""
    steps, values = thin(run.step_numbers, run.curve(key))
    trace = curve(steps, values, name, colour, dash, width=width, group=group)
    return trace if panel is None else trace | {"panel": panel}


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
