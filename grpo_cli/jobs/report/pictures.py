"""The figures of one run: pure, so that a test can hold every number against `metrics.jsonl`. Curves are never smoothed."""

from __future__ import annotations

import html
from collections.abc import Sequence

from grpo_cli.findings.run_data import RunData
from grpo_cli.jobs.report.plot import (
    PALETTE,
    Figure,
    Trace,
    axes,
    band,
    curve,
    grid,
    grid_height,
    into_cell,
    put_cell,
    thin,
    thinned_note,
    two_axes,
)
from grpo_cli.run.info import Metrics

KINDS = (
    ("all_wrong", "all wrong", "#D55E00"),
    ("mixed", "mixed", "#E9C46A"),
    ("all_right", "all right", "#009E73"),
)
OUTCOMES = (
    ("right", "#009E73"), ("wrong", "#D55E00"), ("no_answer", "#E9C46A"), ("over_limit", "#CC79A7"), ("error", "#6A3D9A"),
)  # fmt: skip
PHASES = (
    ("generate", "#0072B2"),
    ("environment", "#CC79A7"),
    ("verify", "#E69F00"),
    ("update", "#009E73"),
    ("other", "#999999"),
)


def rewards(run: RunData, bands: dict[int, tuple[float, float]]) -> Figure | None:
    """Reward by source as small multiples; the total with the 10 to 90 % range of group means where samples were read."""
    names = [name for name in run.names("reward/", "/mean") if name != "total"]
    keys = [("total", "reward/total/mean"), *((name, f"reward/{name}/mean") for name in names)]
    if any(v for v in run.curve("think") if v):
        keys.append(("think (share of samples)", "think"))
    traces: list[Trace] = []
    layout = grid()
    for i, (name, key) in enumerate(keys):
        steps, values = thin(run.step_numbers, run.curve(key))
        if i == 0 and bands:
            known = sorted(bands)
            traces += into_cell(
                band(
                    known,
                    [bands[s][0] for s in known],
                    [bands[s][1] for s in known],
                    PALETTE[0],
                    "10 to 90 % of groups",
                ),
                0,
            )
        traces += into_cell([curve(steps, values, name, PALETTE[i % len(PALETTE)])], i)
        put_cell(layout, i, len(keys), name)
    caption = "Mean over the samples with a verdict. Format usually saturates first, then the answer moves."
    return Figure(
        "reward", "Reward by source", caption + thinned_note([run]), traces, layout, grid_height(len(keys))
    )


def groups(run: RunData) -> Figure | None:
    """The signature picture: how many groups can teach anything."""
    if not any(run.curve("group/count")):
        return None
    traces = []
    for kind, word, colour in KINDS:
        shares = [
            m.get(f"group/{kind}", 0) / m["group/count"] if m.get("group/count") else None for m in run.steps
        ]
        steps, values = thin(run.step_numbers, shares)
        traces.append(
            {
                "type": "scatter",
                "x": steps,
                "y": values,
                "name": word,
                "stackgroup": "groups",
                "mode": "lines",
                "line": {"width": 0.5, "color": colour},
                "fillcolor": colour,
            }
        )
    steps, signal = thin(run.step_numbers, run.curve("group/signal"))
    traces.append(curve(steps, signal, "with signal", "#222222", "dash"))
    caption = "Groups by the primary verifier. Only groups whose rewards differ (dashed) move the policy: mixed is where learning happens."
    return Figure(
        "groups",
        "Groups: all wrong, mixed, all right",
        caption,
        traces,
        axes("step", "share of groups", share=True),
    )


def histogram(run: RunData) -> Figure | None:
    """k of G, the first against the last steps, and over time."""
    size = _group_size(run)
    if not size:
        return None
    window = min(50, max(1, len(run.steps) // 4))
    names = [f"{k}/{size}" for k in range(size + 1)]
    traces: list[Trace] = [
        {"type": "bar", "x": names, "y": _hist_shares(part, size), "name": label, "marker": {"color": colour}}
        for part, label, colour in (
            (run.steps[:window], f"first {window} steps", "#999999"),
            (run.steps[-window:], f"last {window} steps", PALETTE[0]),
        )
    ]
    steps, columns = _joined_steps(run, size)
    traces.append(
        {
            "type": "heatmap",
            "x": steps,
            "y": names,
            "z": [list(row) for row in zip(*columns, strict=True)],
            "xaxis": "x2",
            "yaxis": "y2",
            "colorscale": "Cividis",
            "name": "groups",
            "colorbar": {"title": {"text": "share"}, "thickness": 10},
        }
    )
    layout = {
        "xaxis": {"domain": [0, 0.44], "title": {"text": "right samples in a group"}, "type": "category"},
        "yaxis": {"title": {"text": "share of groups"}, "rangemode": "tozero"},
        "xaxis2": {"domain": [0.54, 1], "title": {"text": "step"}}, "yaxis2": {"anchor": "x2", "type": "category"}, "barmode": "group",
        "legend": {"orientation": "h", "y": 1.12},
    }  # fmt: skip
    return Figure(
        "histogram",
        "Right samples per group",
        "Mass should walk to the right without leaving the middle empty.",
        traces,
        layout,
        340,
    )


def lengths(run: RunData) -> Figure | None:
    """Length above, truncation below; right and wrong apart, because hacks show there."""
    traces: list[Trace] = []
    for name, key, colour, dash in (
        ("mean", "length/mean", PALETTE[0], "solid"), ("p95", "length/p95", PALETTE[0], "dot"),
        ("right", "length/right", "#009E73", "solid"), ("wrong", "length/wrong", "#D55E00", "solid"),
    ):  # fmt: skip
        steps, values = thin(run.step_numbers, run.curve(key))
        traces.append(curve(steps, values, name, colour, dash))
    for name, key, colour in (("truncated", "truncated", "#CC79A7"), ("no answer", "no_answer", "#8C7A00")):
        steps, values = thin(run.step_numbers, run.curve(key))
        traces.append(curve(steps, values, name, colour) | {"xaxis": "x", "yaxis": "y2"})
    layout = two_axes("tokens", "share of samples") | {"xaxis": {"title": {"text": "step"}, "anchor": "y2"}}
    if run.info.max_tokens:
        layout["shapes"] = [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": run.info.max_tokens,
                "y1": run.info.max_tokens,
                "line": {"dash": "dash", "width": 1, "color": "#999999"},
            }
        ]
    return Figure(
        "lengths", "Lengths", "Growth is normal, hitting the cap (dashed) is not.", traces, layout, 420
    )


def policy(run: RunData) -> Figure | None:
    """Entropy, KL, clipping, gradient norm and learning rate as small multiples."""
    rows = [
        ("entropy", ["entropy", "entropy/sampled"], False), ("kl to the reference", ["kl"], False), ("clipped share", ["clip/total", "clip/low", "clip/high"], False),
        ("gradient norm (log)", ["grad_norm"], True), ("learning rate", ["lr"], False), ("loss", ["loss"], False),
    ]  # fmt: skip
    shown = [
        (title, [k for k in keys if any(v is not None for v in run.curve(k))], log)
        for title, keys, log in rows
    ]
    shown = [row for row in shown if row[1]]
    if not shown:
        return None
    layout, traces = grid(), []
    for i, (title, keys, log) in enumerate(shown):
        for j, key in enumerate(keys):
            steps, values = thin(run.step_numbers, run.curve(key))
            traces += into_cell([curve(steps, values, key, PALETTE[j])], i)
        put_cell(layout, i, len(shown), title, log=log)
    caption = (
        "A slow fall of entropy is fine, a collapse ends exploration; `entropy` is over the rows trained on, `entropy/sampled`"
        " (-log p of the sampled tokens) over all. The loss says little in GRPO and stands last."
    )
    return Figure("policy", "Policy", caption, traces, layout, grid_height(len(shown)))


def timing(run: RunData) -> Figure | None:
    """Who waits for whom: seconds by phase, with the speed of generation below."""
    if not any(run.curve("time/step")):
        return None
    traces: list[Trace] = []
    for phase, colour in PHASES:
        steps, values = thin(run.step_numbers, run.curve(f"time/{phase}"))
        if any(values):
            traces.append(
                {
                    "type": "scatter",
                    "x": steps,
                    "y": values,
                    "name": phase,
                    "stackgroup": "time",
                    "mode": "lines",
                    "line": {"width": 0.5, "color": colour},
                    "fillcolor": colour,
                }
            )
    steps, values = thin(run.step_numbers, run.curve("tokens_per_s"))
    traces.append(curve(steps, values, "tokens/s", PALETTE[3]) | {"xaxis": "x", "yaxis": "y2"})
    known = [share for share in run.curve("mfu") if share is not None]
    used = f" The update took {sum(known) / len(known):.0%} of the card's rate (MFU)." if known else ""
    layout = two_axes("seconds a step", "tokens/s") | {"xaxis": {"title": {"text": "step"}, "anchor": "y2"}}
    return Figure(
        "timing",
        "Where the time goes",
        f"Seconds of each step by phase; generated tokens a second below.{used}",
        traces,
        layout,
        420,
    )


def verifiers(run: RunData) -> Figure | None:
    """Outcomes of each verifier as shares of its calls."""
    names = run.names("verify/", "/calls")
    if not names:
        return None
    layout, traces = grid(), []
    for i, name in enumerate(names):
        for outcome, colour in OUTCOMES:
            shares = [_share(m, f"verify/{name}/{outcome}", f"verify/{name}/calls") for m in run.steps]
            if outcome in ("right", "wrong") or any(shares):
                steps, values = thin(run.step_numbers, shares)
                area = {
                    "type": "scatter",
                    "x": steps,
                    "y": values,
                    "name": outcome,
                    "stackgroup": f"v{i}",
                    "mode": "lines",
                    "line": {"width": 0.5, "color": colour},
                    "fillcolor": colour,
                    "legendgroup": outcome,
                    "showlegend": i == 0,
                }
                traces += into_cell([area], i)
        put_cell(layout, i, len(names), name)
    layout["showlegend"] = True
    caption = "An error is no verdict and no zero: such samples leave their group. More than 1 % smells."
    return Figure("verifiers", "Verifier outcomes", caption, traces, layout, grid_height(len(names)))


def latency(run: RunData) -> Figure | None:
    """The slow end of each verifier's answers."""
    traces = []
    for i, name in enumerate(run.names("verify/", "/p95_s")):
        steps, values = thin(run.step_numbers, run.curve(f"verify/{name}/p95_s"))
        if any(values):
            traces.append(
                curve(
                    steps, [None if v is None else 1000 * v for v in values], name, PALETTE[i % len(PALETTE)]
                )
            )
    if not traces:
        return None
    return Figure(
        "latency",
        "Verifier latency",
        "95th percentile of a verdict's time.",
        traces,
        axes("step", "ms", from_zero=True),
        240,
    )


def prompts(heat: tuple[list[str], list[int], list[list[float | None]]]) -> Figure | None:
    """Which prompts never move: solve rate of each held-out prompt at each evaluation."""
    rows, steps, rates = heat
    if not rows or len(steps) < 2:
        return None
    trace = {
        "type": "heatmap",
        "x": [f"step {s}" for s in steps],
        "y": list(range(len(rows))),
        "z": rates,
        "text": [[html.escape(row)] * len(steps) for row in rows],
        "hovertemplate": "prompt %{text}<br>%{x}<br>right %{z:.0%}<extra></extra>",
        "colorscale": "Cividis",
        "zmin": 0,
        "zmax": 1,
        "colorbar": {"title": {"text": "right"}, "thickness": 10},
    }
    layout = {
        "yaxis": {"title": {"text": f"{len(rows)} held-out prompts"}, "showticklabels": False},
        "xaxis": {"type": "category"},
    }
    return Figure(
        "prompts",
        "Prompt by prompt",
        "Each row is one held-out prompt, sorted by its last and first rate: dark rows never move.",
        [trace],
        layout,
        420,
    )


def _share(metrics: Metrics, part: str, whole: str) -> float | None:
    return metrics.get(part, 0) / metrics[whole] if metrics.get(whole) else None


def _group_size(run: RunData) -> int:
    sizes = [
        int(key.rsplit("/", 1)[1])
        for m in (*run.steps[:1], *run.steps[-1:])
        for key in m
        if key.startswith("group/hist/")
    ]
    return max(sizes, default=0)


def _hist_shares(part: Sequence[Metrics], size: int) -> list[float]:
    counts = [sum(m.get(f"group/hist/{k}") or 0 for m in part) for k in range(size + 1)]
    return [count / max(sum(counts), 1) for count in counts]


def _joined_steps(run: RunData, size: int) -> tuple[list[int], list[list[float]]]:
    width = -(-len(run.steps) // 120) or 1
    starts = range(0, len(run.steps), width)
    return [run.step_numbers[i] for i in starts], [
        _hist_shares(run.steps[i : i + width], size) for i in starts
    ]
