"""Figures as panels and traces, which `assets/plot.js` draws as SVG; pure, so that a test can hold every number against `metrics.jsonl`.

First the figures of several arms: held-out scores with their bands over seeds, and metrics laid over each other. Then what every
figure is made of: `Figure`, `Panel`, curves, bands and areas. Last the figures of one run: each function takes a run and returns a
`Figure`, or None where the run measured nothing of it; page.py puts them in their order. Of a run longer than `MOST_POINTS` steps
means of neighbouring steps are drawn, and the caption says so. The page smooths curves in the browser, where this can
be turned off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from grpo_cli.findings.run_data import Arm, RunData
from grpo_cli.run.info import Metrics
from grpo_cli.statistics.step import mean
from grpo_cli.text import number

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
    """Placebos are grey and dashed, each with its own dash pattern."""
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
    """One figure: traces (each names its panel), a sentence that describes it, and what a reader should look for."""

    id: str
    title: str
    caption: str
    traces: list[Trace]
    panels: Sequence[Panel] = (Panel(),)

    @property
    def height(self) -> int:
        """Approximate height in pixels, so that the page does not jump when it is drawn."""
        rows = sum((panel.height + 40) / (2 if panel.half else 1) for panel in self.panels)
        return round(rows + 50)

    def as_json(self, axes: dict[tuple[Any, ...], int]) -> dict[str, Any]:
        """The data for the page's script; `axes` holds every list of x values once, and traces refer to it by index."""
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
    """Notes in the caption when points are means."""
    longest = max((len(run.steps) for run in runs), default=0)
    size = -(-longest // MOST_POINTS)
    return f" Points are means of {size} steps." if size > 1 else ""


def _short(value: object) -> object:
    """Numbers with as many digits as a reader could tell apart."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    return [_short(item) for item in value] if isinstance(value, list | tuple) else value


# The figures of one run.

KINDS = (("all_wrong", "all wrong", "#D55E00"), ("mixed", "mixed", "#E9C46A"), ("all_right", "all right", "#009E73"))
OUTCOMES = (
    ("right", "#009E73"), ("wrong", "#D55E00"), ("no_answer", "#E9C46A"), ("over_limit", "#CC79A7"), ("error", "#6A3D9A"),
)  # fmt: skip
PHASES = (
    ("generate", "#0072B2"), ("environment", "#CC79A7"), ("verify", "#E69F00"), ("critic", "#56B4E9"), ("update", "#009E73"),
    ("other", "#999999"),
)  # fmt: skip


def rewards(run: RunData, bands: dict[int, tuple[float, float]]) -> Figure | None:
    """Reward by source as small multiples; the total with the 10 to 90 % range of group means where samples were read."""
    names = [name for name in run.names("reward/", "/mean") if name != "total"]
    keys = [("total", "reward/total/mean"), *((name, f"reward/{name}/mean") for name in names)]
    if any(v for v in run.curve("think") if v):
        keys.append(("think (share of samples)", "think"))
    traces: list[Trace] = []
    if bands:
        known = sorted(bands)
        low, high = ([bands[step][end] for step in known] for end in (0, 1))
        traces.append(band(known, low, high, PALETTE[0], "10 to 90 % of groups"))
    for i, (name, key) in enumerate(keys):
        traces.append(run_curve(run, key, name, PALETTE[i % len(PALETTE)], panel=i))
    caption = "Mean over the samples with a verdict. Format usually saturates first, then the answer moves."
    panels = [cell(name, len(keys)) for name, _ in keys]
    return Figure("reward", "Reward by source", caption + thinned_note([run]), traces, panels)


def groups(run: RunData) -> Figure | None:
    """The most important figure: how many groups have signal."""
    if not any(run.curve("group/count")):
        return None
    traces = []
    for kind, word, colour in KINDS:
        shares = [m.get(f"group/{kind}", 0) / m["group/count"] if m.get("group/count") else None for m in run.steps]
        steps, values = thin(run.step_numbers, shares)
        traces.append(area(steps, values, word, colour))
    traces.append(run_curve(run, "group/signal", "with signal", "#222222", "dash"))
    caption = "Groups by the primary verifier. Only groups whose rewards differ (dashed) move the policy: mixed is where learning happens."
    panel = Panel("share of groups", share=True)
    return Figure("groups", "Groups: all wrong, mixed, all right", caption, traces, [panel])


def histogram(run: RunData) -> Figure | None:
    """k of G, the first against the last steps, and over time."""
    keys = [key for m in (*run.steps[:1], *run.steps[-1:]) for key in m if key.startswith("group/hist/")]
    size = max((int(key.rsplit("/", 1)[1]) for key in keys), default=0)
    if not size:
        return None
    window = min(50, max(1, len(run.steps) // 4))
    names = [f"{k}/{size}" for k in range(size + 1)]
    traces: list[Trace] = [
        {"type": "bar", "x": names, "y": _hist_shares(part, size), "name": label, "line": {"color": colour}}
        for part, label, colour in (
            (run.steps[:window], f"first {window} steps", "#999999"),
            (run.steps[-window:], f"last {window} steps", PALETTE[0]),
        )
    ]
    width = -(-len(run.steps) // 120) or 1
    starts = range(0, len(run.steps), width)
    steps = [run.step_numbers[i] for i in starts]
    columns = [_hist_shares(run.steps[i : i + width], size) for i in starts]
    shares = [list(row) for row in zip(*columns, strict=True)]
    traces.append({"type": "heat", "x": steps, "names": names, "z": shares, "panel": 1})
    panels = [
        Panel("share of groups", x="right samples in a group", half=True, from_zero=True),
        Panel("right samples in a group", half=True),
    ]
    says = "Mass should walk to the right without leaving the middle empty."
    return Figure("histogram", "Right samples per group", says, traces, panels)


def lengths(run: RunData) -> Figure | None:
    """Length above, truncation below; right and wrong apart, because hacks show there."""
    traces: list[Trace] = []
    for name, key, colour, dash in (
        ("mean", "length/mean", PALETTE[0], "solid"), ("p95", "length/p95", PALETTE[0], "dot"),
        ("right", "length/right", "#009E73", "solid"), ("wrong", "length/wrong", "#D55E00", "solid"),
    ):  # fmt: skip
        traces.append(run_curve(run, key, name, colour, dash))
    for name, key, colour in (("truncated", "truncated", "#CC79A7"), ("no answer", "no_answer", "#8C7A00")):
        traces.append(run_curve(run, key, name, colour, panel=1))
    panels = two_panels("tokens", "share of samples", cap=run.info.max_tokens)
    return Figure("lengths", "Lengths", "Growth is normal, hitting the cap (dashed) is not.", traces, panels)


def policy(run: RunData) -> Figure | None:
    """Entropy, KL, clipping, gradient norm and learning rate as small multiples."""
    rows = [
        ("entropy", ["entropy", "entropy/sampled"], False), ("kl to the reference", ["kl"], False), ("clipped share", ["clip/total", "clip/low", "clip/high"], False),
        ("variance of returns that the critic explains", ["critic/explained_variance"], False), ("value loss", ["critic/loss"], False),
        ("values and returns", ["value/mean", "return/mean"], False),
        ("gradient norm (log)", ["grad_norm"], True), ("learning rate", ["lr"], False), ("loss", ["loss"], False),
    ]  # fmt: skip
    shown = [(title, [k for k in keys if any(v is not None for v in run.curve(k))], log) for title, keys, log in rows]
    shown = [row for row in shown if row[1]]
    if not shown:
        return None
    traces: list[Trace] = []
    colours = iter(PALETTE)  # one legend for all panels: a colour means the same curve; single curves need no legend
    for i, (_, keys, _) in enumerate(shown):
        for key in keys:
            traces.append(run_curve(run, key, key, next(colours) if len(keys) > 1 else "#222222", panel=i))
    caption = (
        "A slow fall of entropy is fine, a collapse ends exploration; `entropy` is over the rows trained on, `entropy/sampled`"
        " (-log p of the sampled tokens) over all. The loss means little in GRPO and is drawn last."
    )
    panels = [cell(title, len(shown), log=log) for title, _, log in shown]
    return Figure("policy", "Policy", caption, traces, panels)


def timing(run: RunData) -> Figure | None:
    """The time of each phase in seconds, with the speed of generation below."""
    if not any(run.curve("time/step")):
        return None
    traces: list[Trace] = []
    for phase, colour in PHASES:
        steps, values = thin(run.step_numbers, run.curve(f"time/{phase}"))
        if any(values):
            traces.append(area(steps, values, phase, colour))
    traces.append(run_curve(run, "tokens_per_s", "tokens/s", PALETTE[3], panel=1))
    known = [share for share in run.curve("mfu") if share is not None]
    used = f" The update took {sum(known) / len(known):.0%} of the card's rate (MFU)." if known else ""
    if held := [mib for mib in run.curve("critic/mib") if mib is not None]:
        used += f" The critic's weights and optimizer took {number(held[-1])} MiB."
    says = f"Seconds of each step by phase; generated tokens a second below.{used}"
    return Figure("timing", "Where the time goes", says, traces, two_panels("seconds a step", "tokens/s"))


def verifiers(run: RunData) -> Figure | None:
    """Outcomes of each verifier as shares of its calls."""
    names = run.names("verify/", "/calls")
    if not names:
        return None
    traces = []
    for i, name in enumerate(names):
        for outcome, colour in OUTCOMES:
            of, calls = f"verify/{name}/{outcome}", f"verify/{name}/calls"
            shares = [m.get(of, 0) / m[calls] if m.get(calls) else None for m in run.steps]
            if outcome in ("right", "wrong") or any(shares):
                steps, values = thin(run.step_numbers, shares)
                traces.append(area(steps, values, outcome, colour) | {"panel": i})
    caption = "An error is no verdict and no zero: such samples leave their group. More than 1 % smells."
    return Figure("verifiers", "Verifier outcomes", caption, traces, [cell(name, len(names)) for name in names])


def latency(run: RunData) -> Figure | None:
    """The latency percentiles of each verifier."""
    traces = []
    for i, name in enumerate(run.names("verify/", "/p95_s")):
        steps, values = thin(run.step_numbers, run.curve(f"verify/{name}/p95_s"))
        if any(values):
            in_ms = [None if v is None else 1000 * v for v in values]
            traces.append(curve(steps, in_ms, name, PALETTE[i % len(PALETTE)]))
    if not traces:
        return None
    panel = Panel("ms", height=200, from_zero=True)
    return Figure("latency", "Verifier latency", "95th percentile of a verdict's time.", traces, [panel])


def prompts(heat: tuple[list[str], list[int], list[list[float | None]]]) -> Figure | None:
    """The solve rate of each held-out prompt at each evaluation, which shows prompts that never improve."""
    rows, steps, rates = heat
    if not rows or len(steps) < 2:
        return None
    trace = {"type": "heat", "x": [f"step {s}" for s in steps], "names": rows, "z": rates, "top": 1}
    says = "Each row is one held-out prompt, sorted by its last and first rate: dark rows never move."
    panel = Panel(f"{len(rows)} held-out prompts", x="", height=380)
    return Figure("prompts", "Prompt by prompt", says, [trace], [panel])


def _hist_shares(part: Sequence[Metrics], size: int) -> list[float]:
    counts = [sum(m.get(f"group/hist/{k}") or 0 for m in part) for k in range(size + 1)]
    return [count / max(sum(counts), 1) for count in counts]
