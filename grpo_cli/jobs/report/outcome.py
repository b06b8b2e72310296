"""The static parts of the page as data: before and after with n and interval, acts of alarms, and what was run."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from typing import Any

from grpo_cli.display.watch.run import card_of
from grpo_cli.findings.run_data import RunData, diff_from_defaults
from grpo_cli.jobs.report.arms import held_out_shares
from grpo_cli.run.info import Metrics
from grpo_cli.statistics.estimate import paired_clustered
from grpo_cli.text import duration, number, percent, plus_minus, score

Tile = tuple[str, str, str]
"""What is measured, its value, and a note under it."""


@dataclass(frozen=True)
class AlarmAct:
    """An alarm that paused the run or took it back, and where the evidence lies."""

    text: str
    evidence: str


@dataclass(frozen=True)
class Setup:
    """What was run: facts by name, keys off their defaults (None where the defaults are unknown), recipe and manifest whole."""

    facts: list[tuple[str, str]]
    changed: list[tuple[str, Any, Any]] | None
    recipe: str
    manifest: str


def verdict(run: RunData) -> str:
    """Before and after in one sentence, with the paired difference on the same prompts and what could have been seen."""
    points = [m for m in run.evaluations if m.get("eval/pass@1") is not None]
    if len(points) < 2:
        return "Held-out rows were measured less than twice: nothing can be said about before and after."
    first, last = points[0], points[-1]
    said = f"held-out pass@1 {_interval(first, 'eval/pass@1')} → {_interval(last, 'eval/pass@1')} (n {last.get('eval/n', number(None))}), step {first.get('step')} → {last.get('step')}"
    a, b = (held_out_shares(run.folder, int(m.get("step") or 0)) for m in (first, last))
    rows = [row for row in a if row in b]
    if len(rows) < 2:
        return f"{said}."
    found = paired_clustered([a[row] for row in rows], [b[row] for row in rows])
    p = f"p {found.p_value:.2g}" if found.p_value >= 1e-4 else "p < .0001"
    power = "no difference is sure to be found on so few"
    if math.isfinite(found.detectable):
        power = f"a true difference of {found.detectable:.3f} or more is found with 80 % power"
    gap = found.difference
    is_even = math.isclose(gap.high - gap.mean, gap.mean - gap.low, abs_tol=1e-9)
    within = plus_minus(gap.half_width) if is_even else f"[{gap.low:+.3f}, {gap.high:+.3f}]"
    return f"{said}. Paired on {len(rows)} prompts: {gap.mean:+.3f} {within}, {p}; {power}."


def acts_of(run: RunData) -> list[AlarmAct]:
    """Each time an alarm paused the run or took it back."""
    acts = []
    for act in run.manifest.get("acted") or []:
        what = "paused" if act["action"] == "pause" else f"rolled back from step {act['at']}"
        why = "; ".join(
            f"{alarm['code']} at step {alarm['step']}: {alarm['text']}" for alarm in act["alarms"]
        )
        acts.append(AlarmAct(f"{run.name} was {what}: {why}", str(act["evidence"])))
    return acts


def setup_of(run: RunData) -> Setup:
    """The recipe as a difference from the defaults, the command, and where and with what it ran."""
    manifest = run.manifest
    argv = [str(word) for word in manifest.get("argv") or []]
    command = shlex.join(["grpo", *argv[1:]]) if argv else ""
    facts: list[tuple[str, Any]] = [("command", command)]
    facts += [(key, manifest.get(key)) for key in ("started", "status", "device", "seed", "git")]
    facts += [("warning", warning) for warning in manifest.get("warnings") or []]
    for name, sandbox in (manifest.get("sandbox") or {}).items():
        facts.append((f"sandbox of {name}", "; ".join([sandbox["tier"], *sandbox["warnings"]])))
    facts += [(f"{name} version", version) for name, version in (manifest.get("versions") or {}).items()]
    return Setup(
        [(str(name), str(value)) for name, value in facts if value not in (None, "")],
        diff_from_defaults(run),
        run.folder.recipe_text,
        json.dumps(manifest, indent=2, default=str),
    )


def tiles_of(run: RunData) -> list[Tile]:
    """Scores before and after, the training reward, and the time."""
    points = [m for m in run.evaluations if m.get("eval/pass@1") is not None]
    tiles: list[Tile] = []
    if points:
        first, last = points[0], points[-1]
        n = f"n {last['eval/n']} prompts" if last.get("eval/n") else ""
        tiles.append(
            (
                "held-out pass@1",
                f"{score(first['eval/pass@1'])} → {score(last['eval/pass@1'])}",
                f"{plus_minus(first.get('eval/pass@1/half'))} → {plus_minus(last.get('eval/pass@1/half'))}  {n}",
            )
        )
        if last.get("eval/greedy") is not None:
            tiles.append(
                (
                    "greedy",
                    f"{score(first.get('eval/greedy'))} → {score(last['eval/greedy'])}",
                    f"{plus_minus(first.get('eval/greedy/half'))} → {plus_minus(last.get('eval/greedy/half'))}  n {last.get('eval/greedy/n', '')}",
                )
            )
        for k in sorted(
            int(key[10:])
            for key in last
            if key.startswith("eval/pass@") and key[10:].isdigit() and key != "eval/pass@1"
        )[-1:]:
            tiles.append(
                (
                    f"pass@{k}",
                    f"{score(first.get(f'eval/pass@{k}'))} → {score(last.get(f'eval/pass@{k}'))}",
                    plus_minus(last.get(f"eval/pass@{k}/half")),
                )
            )
    if run.steps:
        reward = run.curve("reward/total/mean")
        tiles.append(
            ("training reward", f"{score(reward[0])} → {score(reward[-1])}", f"{len(run.steps)} steps")
        )
        if any(run.curve("think")):
            think = run.curve("think")
            tiles.append(
                ("samples that think", f"{percent(think[0])} → {percent(think[-1])}", "of training samples")
            )
    card = card_of(run.folder)
    samples = sum(m.get("samples") or 0 for m in run.steps)
    tiles.append(
        (
            "time",
            duration(card.wall_s),
            f"{samples:,} samples, {number(float(sum(m.get('tokens') or 0 for m in run.steps)))} tokens",
        )
    )
    return tiles


def _interval(metrics: Metrics, key: str) -> str:
    return f"{score(metrics.get(key))} {plus_minus(metrics.get(f'{key}/half'))}".strip()
