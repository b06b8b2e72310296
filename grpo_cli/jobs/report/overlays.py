"""Figures over all runs: arms in colours, seeds as bands, the placebo grey and dashed."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_cli.findings.run_data import Arm, RunData
from grpo_cli.jobs.report.plot import PALETTE, Figure, Panel, Trace, band, curve, numbers, thin, thinned_note
from grpo_cli.statistics.step import mean


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
            traces.append(
                curve(
                    steps,
                    values,
                    run_label(arm, run),
                    colour,
                    dash,
                    mode="lines+markers",
                    width=0.8 if len(arm.runs) > 1 else 1.6,
                    group=arm.label,
                )
            )
            if len(arms) == 1 and len(arm.runs) == 1:
                traces.append(
                    curve([steps[0], steps[-1]], [values[0]] * 2, "before training", "#888888", "dot")
                )
        if len(arm.runs) > 1:
            traces += seed_band(arm, "eval/pass@1", colour, dash, from_evaluations=True)
    if not traces:
        return None
    counts = {
        int(m["eval/n"]) for arm in arms for run in arm.runs for m in run.evaluations if m.get("eval/n")
    }
    n = " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""
    says = "Bands: 95 % interval clustered by prompt."
    if any(len(arm.runs) > 1 for arm in arms):
        says += " Arms of several seeds: thick their mean, band from the smallest to the largest, thin single runs."
    if sum(len(arm.runs) for arm in arms) == 1:
        says += " Dotted: the model before training."
    caption = f"Held-out pass@1, sampled{f', {n} prompts' if n else ''}. {says}"
    return Figure("held-out", "Held-out score", caption, traces, [Panel("pass@1", share=True)])


def overlay(
    arms: Sequence[Arm],
    key: str,
    id: str,
    title: str,
    caption: str,
    y: str,
    *,
    share: bool = False,
    log: bool = False,
) -> Figure | None:
    """One metric of all arms over the steps: single runs thin, the mean over seeds thick with the range as a band."""
    traces: list[Trace] = []
    for i, arm in enumerate(arms):
        colour, dash = arm_colour(i, arm)
        many = len(arm.runs) > 1
        for run in arm.runs:
            steps, values = thin(run.step_numbers, run.curve(key))
            if any(v is not None for v in values):
                traces.append(
                    curve(
                        steps,
                        values,
                        run_label(arm, run),
                        colour,
                        dash,
                        width=0.8 if many else 1.6,
                        group=arm.label,
                    )
                )
        if many:
            traces += seed_band(arm, key, colour, dash)
    if not traces:
        return None
    return Figure(
        id,
        title,
        caption + thinned_note([run for arm in arms for run in arm.runs]),
        traces,
        [Panel(y, share=share, log=log)],
    )


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
    return [
        band(x, low, high, colour, f"{arm.label}, range"),
        curve(
            x,
            middle,
            f"{arm.label}, mean of {len(tables)} {'seeds' if seeds == len(tables) else 'runs'}",
            colour,
            dash,
            width=3,
            group=arm.label,
        ),
    ]


PLACEBOS = {
    "random": ("#888888", "dash"),
    "shuffled": ("#6b7a8f", "dot"),
    "format_only": ("#a08a6b", "dashdot"),
}


def arm_colour(i: int, arm: Arm) -> tuple[str, str]:
    """Placebos are dull and broken, each in its own way."""
    if not arm.is_placebo:
        return PALETTE[i % len(PALETTE)], "solid"
    return PLACEBOS.get(str(arm.runs[0].recipe.get("train.control")), PLACEBOS["random"])


def run_label(arm: Arm, run: RunData) -> str:
    return arm.label if len(arm.runs) == 1 else f"{arm.label}, {run.name}"
