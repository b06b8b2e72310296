"""Arms side by side: what each came to, how far it is from the first, and whether they had the same budget.

The difference is paired: over seeds that both arms ran, else over the held-out prompts that both were asked. Prompts say
how sure the difference between these very runs is; only seeds say what another run would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.findings.run_data import Arm, RunData, differing_keys
from grpo_cli.run.folder import RunFolder
from grpo_cli.statistics.estimate import Interval, across_seeds, paired_clustered
from grpo_cli.text import number, plus_minus, score

MINUS = "after, minus {}"
HEAD = ("arm", "runs", "steps", "samples a run", "tokens a run", "held-out pass@1 before", "after", MINUS, "last reward")  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """Final held-out pass@1 of one arm minus another's; `over` says what was paired."""

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
        return cls(
            max(run.step_numbers, default=0),
            drawn,
            run.recipe.get("sample.max_tokens"),
            run.recipe.get("train.inner_epochs", 1) * run.recipe.get("train.mini_batches", 1),
        )

    def text(self) -> str:
        """In words."""
        return f"{self.steps} steps, {self.samples:,} samples of at most {self.max_tokens} tokens, {self.updates} update(s) a batch"


def final_difference(arm: Arm, base: Arm) -> Difference | None:
    """How far the arm ends from the base arm; None where nothing can be paired."""
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
    """What makes the arms unequal beside what they are to compare: budgets, last evaluations, and keys of a placebo's recipe."""
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
    """One row an arm (label, then a cell for each of the other heads), what makes them unequal, how intervals came about."""

    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    unequal: Sequence[str]
    how: str


def arms_table(arms: Sequence[Arm]) -> ArmsTable:
    """The arms side by side, each held against the first."""
    base, paired = arms[0], dict[str, None]()
    rows = []
    for arm in arms:
        found = final_difference(arm, base) if arm is not base else None
        if found is not None:
            paired[found.over] = None
        cells = [
            str(len(arm.runs)),
            _range([Budget.of(run).steps for run in arm.runs]),
            _range([Budget.of(run).samples for run in arm.runs]),
            number(_mean([sum(m.get("tokens") or 0 for m in run.steps) for run in arm.runs])),
            _scores(arm, 0),
            _scores(arm, -1),
            *([_difference(found) if arm is not base else ""] if len(arms) > 1 else []),
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
    return next(
        (m["eval/pass@1"] for m in reversed(run.evaluations) if m.get("eval/pass@1") is not None), None
    )


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


def _difference(found: Difference | None) -> str:
    if found is None:
        return "—"
    i = found.interval
    return f"{i.mean:+.3f} [{i.low:+.3f}, {i.high:+.3f}]"


def _scores(arm: Arm, at: int) -> str:
    """Held-out score before (0) or after (-1): of one run with its own interval, else over seeds."""
    points = [
        (run.info.seed, [m for m in run.evaluations if m.get("eval/pass@1") is not None]) for run in arm.runs
    ]
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


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None
