"""Compares arms: the score of each, its difference to the first, and whether all had the same budget.

The difference is paired: over seeds that both arms ran, else over held-out prompts that both answered. An interval over
prompts only holds for these runs; only one over seeds predicts another run.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.display.watch import card_of
from grpo_cli.errors import masked
from grpo_cli.findings.run_data import Arm, RunData, diff_from_defaults, differing_keys
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Metrics
from grpo_cli.statistics.estimate import Interval, across_seeds, paired_clustered
from grpo_cli.statistics.step import mean
from grpo_cli.text import duration, number, percent, plus_minus, score

# The static parts of the page as data: scores before and after with n and interval, actions of alarms, and what was
# run.

Tile = tuple[str, str, str]
"""What is measured, its value, and a note under it."""


@dataclass(frozen=True)
class AlarmAct:
    """An alarm that paused the run or rolled it back, and the file with its evidence."""

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
    """Scores before and after in one sentence, with the paired difference on the same prompts and the smallest
    detectable difference."""
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
    """The alarms that paused the run or rolled it back."""
    acts = []
    for act in run.manifest.get("acted") or []:
        what = "paused" if act["action"] == "pause" else f"rolled back from step {act['at']}"
        why = "; ".join(f"{alarm['code']} at step {alarm['step']}: {alarm['text']}" for alarm in act["alarms"])
        acts.append(AlarmAct(f"{run.name} was {what}: {why}", str(act["evidence"])))
    return acts


def setup_of(run: RunData) -> Setup:
    """The recipe's differences from the defaults, the command, the machine, and the versions."""
    manifest = run.manifest
    argv = [str(word) for word in manifest.get("argv") or []]
    # a shell takes `~` for the home only where it is not quoted
    command = shlex.join(["grpo", *argv[1:]]).replace(" '~/", " ~/'") if argv else ""
    facts: list[tuple[str, Any]] = [("command", command)]
    facts += [(key, manifest.get(key)) for key in ("started", "status", "device", "seed", "git")]
    facts += [("warning", warning) for warning in manifest.get("warnings") or []]
    for name, sandbox in (manifest.get("sandbox") or {}).items():
        facts.append((f"sandbox of {name}", "; ".join([sandbox["tier"], *sandbox["warnings"]])))
    facts += [(f"{name} version", version) for name, version in (manifest.get("versions") or {}).items()]
    return Setup(
        [(str(name), str(value)) for name, value in facts if value not in (None, "")],
        diff_from_defaults(run),
        "\n".join(map(masked, run.folder.recipe_text.split("\n"))),
        json.dumps({key: value for key, value in manifest.items() if key != "base"}, indent=2, default=str),
    )


def tiles_of(run: RunData) -> list[Tile]:
    """Scores before and after, the training reward, and the time."""
    points = [m for m in run.evaluations if m.get("eval/pass@1") is not None]
    tiles: list[Tile] = []
    if points:
        first, last = points[0], points[-1]

        def add(name: str, key: str, note: str) -> None:
            tiles.append((name, f"{score(first.get(key))} → {score(last[key])}", note))

        def halves(key: str) -> str:
            return f"{plus_minus(first.get(f'{key}/half'))} → {plus_minus(last.get(f'{key}/half'))}"

        n = f"n {last['eval/n']} prompts" if last.get("eval/n") else ""
        add("held-out pass@1", "eval/pass@1", f"{halves('eval/pass@1')}  {n}")
        if last.get("eval/greedy") is not None:
            add("greedy", "eval/greedy", f"{halves('eval/greedy')}  n {last.get('eval/greedy/n', '')}")
        of_k = [int(key[10:]) for key in last if key.startswith("eval/pass@") and key[10:].isdigit()]
        if (k := max(of_k, default=1)) > 1:
            add(f"pass@{k}", f"eval/pass@{k}", plus_minus(last.get(f"eval/pass@{k}/half")))
    if run.steps:
        reward = run.curve("reward/total/mean")
        tiles.append(("training reward", f"{score(reward[0])} → {score(reward[-1])}", f"{len(run.steps)} steps"))
        if any(run.curve("think")):
            think = run.curve("think")
            tiles.append(("samples that think", f"{percent(think[0])} → {percent(think[-1])}", "of training samples"))
    card = card_of(run.folder)
    samples, tokens = (sum(m.get(key) or 0 for m in run.steps) for key in ("samples", "tokens"))
    tiles.append(("time", duration(card.wall_s), f"{samples:,} samples, {number(float(tokens))} tokens"))
    return tiles


def _interval(metrics: Metrics, key: str) -> str:
    return f"{score(metrics.get(key))} {plus_minus(metrics.get(f'{key}/half'))}".strip()


MINUS = "after, minus {}"
HEAD = ("arm", "runs", "steps", "samples a run", "tokens a run", "held-out pass@1 before", "after", MINUS, "last reward")  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """Final held-out pass@1 of one arm minus another's; `over` names what was paired."""

    interval: Interval
    over: str


@dataclass(frozen=True)
class Budget:
    """What a run was allowed and used: steps done, completions drawn, the longest completion, updates a batch."""

    steps: int
    samples: int
    max_tokens: Any
    updates: Any

    @classmethod
    def of(cls, run: RunData) -> Budget:
        """Of one run."""
        drawn = sum(m.get("samples") or 0 for m in run.steps)
        updates = run.recipe.get("train.inner_epochs", 1) * run.recipe.get("train.mini_batches", 1)
        return cls(max(run.step_numbers, default=0), drawn, run.recipe.get("sample.max_tokens"), updates)

    def text(self) -> str:
        """In words."""
        return f"{self.steps} steps, {self.samples:,} samples of at most {self.max_tokens} tokens, {self.updates} update(s) a batch"


def final_difference(arm: Arm, base: Arm) -> Difference | None:
    """The difference of the arm's final score to the base arm's; None if nothing can be paired."""
    ends = [{run.info.seed: final_score(run) for run in one.runs} for one in (arm, base)]
    shared = [s for s in ends[0] if s in ends[1] and ends[0][s] is not None and ends[1][s] is not None]
    if len(shared) > 1:
        gains = [float(ends[0][seed]) - float(ends[1][seed]) for seed in shared]  # type: ignore[arg-type]
        return Difference(across_seeds(gains), f"{len(shared)} seeds")
    there, here = (pooled_shares(one.runs) for one in (base, arm))
    rows = [row for row in there if row in here]
    if len(rows) < 2:
        return None
    found = paired_clustered([there[row] for row in rows], [here[row] for row in rows])
    return Difference(found.difference, f"{len(rows)} prompts")


def budget_notes(arms: Sequence[Arm]) -> list[str]:
    """Unintended differences between arms: budgets, last evaluations, and keys of a placebo's recipe."""
    notes, base = [], arms[0].runs[0]
    budgets = [(arm, budget) for arm in arms for budget in dict.fromkeys(Budget.of(run) for run in arm.runs)]
    if len({budget for _, budget in budgets}) > 1:
        told = "; ".join(f"{arm.label}: {budget.text()}" for arm, budget in budgets)
        notes.append(f"The budgets differ, so a difference may come from that alone. {told}")
    ends = {arm.label: sorted({last_step(run) for run in arm.runs}) for arm in arms}
    if len({step for steps in ends.values() for step in steps}) > 1:
        told = ", ".join(f"{label} at step {' and '.join(map(str, steps))}" for label, steps in ends.items())
        notes.append(f"The last evaluations are of different steps: {told}.")
    for arm in arms:
        keys = [k for k in differing_keys([base.recipe, arm.runs[0].recipe]) if k != "train.control"]
        if arm.is_placebo and keys:
            notes.append(f"{arm.label} differs from {arms[0].label} in {', '.join(keys[:6])} too.")
    return notes


@dataclass(frozen=True)
class ArmsTable:
    """One row for each arm (label, then a cell for each other column), the unintended differences, and the meaning of
    the intervals."""

    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    unequal: Sequence[str]
    how: str


def arms_table(arms: Sequence[Arm]) -> ArmsTable:
    """The table of arms, each compared with the first."""
    base, paired = arms[0], dict[str, None]()
    rows = []
    for arm in arms:
        found = final_difference(arm, base) if arm is not base else None
        gap = "" if arm is base else "—"
        if found is not None:
            paired[found.over] = None
            gap = f"{found.interval.mean:+.3f} [{found.interval.low:+.3f}, {found.interval.high:+.3f}]"
        cells = [
            str(len(arm.runs)),
            _range([Budget.of(run).steps for run in arm.runs]),
            _range([Budget.of(run).samples for run in arm.runs]),
            number(mean([float(sum(m.get("tokens") or 0 for m in run.steps)) for run in arm.runs])),
            _scores(arm, 0),
            _scores(arm, -1),
            *([gap] if len(arms) > 1 else []),
            _over_seeds([(r.info.seed, r.curve("reward/total/mean")[-1]) for r in arm.runs if r.steps]),
        ]
        rows.append((arm.label, cells))
    how = [
        "± is the 95 % half-width: over seeds (t) where an arm has several runs, clustered by prompt where it has one."
    ]
    if paired:
        how.append(f"Differences are paired over {' and '.join(paired)}.")
    if any("prompts" in over for over in paired):
        how.append("Prompts tell these runs apart; what another seed would do takes more runs.")
    if any(arm.is_placebo for arm in arms):
        how.append("A placebo is rewarded for nothing that is right: what it gains is not due to the reward.")
    heads = [head.format(base.label) for head in HEAD if len(arms) > 1 or head != MINUS]
    return ArmsTable(heads, rows, budget_notes(arms), " ".join(how))


def final_score(run: RunData) -> float | None:
    """Held-out pass@1 of the last evaluation."""
    return next((m["eval/pass@1"] for m in reversed(run.evaluations) if m.get("eval/pass@1") is not None), None)


def last_step(run: RunData) -> int:
    """The step of the last evaluation."""
    return max((int(m.get("step") or 0) for m in run.evaluations), default=0)


def pooled_shares(runs: Sequence[RunData]) -> dict[str, list[float]]:
    """Right (1.0) or not of every judged sample of the last evaluation, by held-out row, over the runs of an arm."""
    rows: dict[str, list[float]] = {}
    for run in runs:
        for row, shares in held_out_shares(run.folder, last_step(run)).items():
            rows.setdefault(row, []).extend(shares)
    return rows


def held_out_shares(folder: RunFolder, step: int) -> dict[str, list[float]]:
    """Right (1.0) or not of every judged held-out sample of a step, by row."""
    rows: dict[str, list[float]] = {}
    for sample in folder.samples(step, "eval"):
        if sample.is_judged:
            rows.setdefault(sample.row, []).append(float(sample.is_right))
    return rows


def _scores(arm: Arm, at: int) -> str:
    """Held-out score before (0) or after (-1): of one run with its own interval, else over seeds."""
    points = [(run.info.seed, [m for m in run.evaluations if m.get("eval/pass@1") is not None]) for run in arm.runs]
    chosen = [(seed, one[at]) for seed, one in points if one]
    if len(chosen) == 1:
        ((_, only),) = chosen
        n = f"  n {only['eval/n']}" if only.get("eval/n") else ""
        return f"{score(only['eval/pass@1'])} {plus_minus(only.get('eval/pass@1/half'))}{n}"
    return _over_seeds([(seed, m["eval/pass@1"]) for seed, m in chosen])


def _over_seeds(values: Sequence[tuple[int | None, Any]]) -> str:
    """Mean and 95 % half-width over seeds; runs of one seed are one draw, so that they count as their mean."""
    known: dict[int | None, list[float]] = {}
    for seed, value in values:
        if value is not None:
            known.setdefault(seed, []).append(float(value))
    if not known:
        return number(None)
    found = across_seeds([sum(of_one) / len(of_one) for of_one in known.values()])
    return f"{score(found.mean)} {plus_minus(found.half_width)}".strip()


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
