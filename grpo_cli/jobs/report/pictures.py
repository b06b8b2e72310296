"""The figures of one run: pure, so that a test can hold every number against `metrics.jsonl`.

Each function takes a run and returns a `Figure` (plot.py), or None where the run measured nothing of it; page.py puts them in
their order. Smoothing is the page's, and can be turned off.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpo_cli.findings.run_data import RunData
from grpo_cli.jobs.report.plot import (
    PALETTE,
    Figure,
    Panel,
    Trace,
    area,
    band,
    cell,
    curve,
    run_curve,
    thin,
    thinned_note,
    two_panels,
)
from grpo_cli.run.info import Metrics
from grpo_cli.text import number

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
    """The signature picture: how many groups can teach anything."""
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
    colours = iter(PALETTE)  # one legend for all panels: a colour means one curve; what is alone needs none
    for i, (_, keys, _) in enumerate(shown):
        for key in keys:
            traces.append(run_curve(run, key, key, next(colours) if len(keys) > 1 else "#222222", panel=i))
    caption = (
        "A slow fall of entropy is fine, a collapse ends exploration; `entropy` is over the rows trained on, `entropy/sampled`"
        " (-log p of the sampled tokens) over all. The loss says little in GRPO and stands last."
    )
    panels = [cell(title, len(shown), log=log) for title, _, log in shown]
    return Figure("policy", "Policy", caption, traces, panels)


def timing(run: RunData) -> Figure | None:
    """Who waits for whom: seconds by phase, with the speed of generation below."""
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
    """The slow end of each verifier's answers."""
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
    """Which prompts never move: solve rate of each held-out prompt at each evaluation."""
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
