"""What a sweep came to: held-out scores of its arms with intervals, over seeds where there are several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_cli.errors import DataError
from grpo_cli.findings.run_data import Arm, RunData, collect
from grpo_cli.jobs.report.arms import Difference, final_difference, final_score
from grpo_cli.jobs.runs.listing import table
from grpo_cli.jobs.sweep.plan import SCHEMA, SweepPlan
from grpo_cli.jobs.sweep.running import state_of
from grpo_cli.run.folder import RunFolder
from grpo_cli.statistics.estimate import Interval, across_seeds
from grpo_cli.text import DASH, score, visible

HEADER = ("arm", "runs", "held-out pass@1", "95 %", "over", "minus the first", "95 %")


@dataclass(frozen=True)
class ArmOutcome:
    """One combination of values: how many of its runs were measured, their score, and how far it is from the first arm's."""

    arm: str
    planned: int
    measured: int
    score: Interval | None
    over: str
    difference: Difference | None

    def as_json(self) -> dict[str, Any]:
        """One object of `--json`."""
        gap = self.difference
        return {
            "arm": self.arm,
            "planned": self.planned,
            "measured": self.measured,
            "pass@1": self.score.as_json() if self.score else None,
            "over": self.over,
            "difference": gap.interval.as_json() | {"over": gap.over} if gap else None,
        }


def outcomes(plan: SweepPlan) -> list[ArmOutcome]:
    """The arms in the order of the sweep; the first that was measured is what the others are held against."""
    found: list[ArmOutcome] = []
    base: Arm | None = None
    for name in dict.fromkeys(run.arm for run in plan.runs):
        planned = [run for run in plan.runs if run.arm == name]
        data = [one for run in planned if (one := _collected(Path(plan.dir) / run.name)) is not None]
        arm = Arm(name, tuple(run for run in data if final_score(run) is not None))
        gap = final_difference(arm, base) if base is not None and arm.runs else None
        base = base or (arm if arm.runs else None)
        value, over = _score(arm.runs)
        found.append(ArmOutcome(name, len(planned), len(arm.runs), value, over, gap))
    return found


def table_of(found: Sequence[ArmOutcome]) -> list[str]:
    """The table for people."""
    rows = [
        [
            visible(one.arm),
            str(one.measured) if one.measured == one.planned else f"{one.measured} of {one.planned}",
            score(one.score.mean if one.score else None),
            _ends(one.score),
            one.over,
            f"{one.difference.interval.mean:+.3f}" if one.difference else DASH,
            _ends(one.difference.interval if one.difference else None, sign="+"),
        ]
        for one in found
    ]
    return table(HEADER, rows)


def as_object(plan: SweepPlan, codes: dict[str, int]) -> dict[str, Any]:
    """The one object of `--json`; `code` is null where a run was over before this sweep came to it."""
    runs = [
        {
            "run": str(Path(plan.dir) / run.name),
            "arm": run.arm,
            "seed": run.seed,
            "status": state_of(plan, run),
            "code": codes.get(run.name),
        }
        for run in plan.runs
    ]
    arms = [one.as_json() for one in outcomes(plan)]
    return {"schema": SCHEMA, "sweep": plan.name, "recipe": plan.recipe, "runs": runs, "arms": arms}


def _collected(path: Path) -> RunData | None:
    """A run's records; None of one that has not begun or recorded nothing."""
    if not (path / "run.json").is_file() or not (path / "metrics.jsonl").is_file():
        return None
    try:
        return collect(RunFolder(path))
    except DataError:
        return None  # counted as not measured: `1 of 3`


def _score(runs: Sequence[RunData]) -> tuple[Interval | None, str]:
    """Over seeds where there are several, else that of the evaluation over its prompts."""
    ends = [float(value) for run in runs if (value := final_score(run)) is not None]
    if not ends:
        return None, ""
    if len(ends) > 1:
        return across_seeds(ends), f"{len(ends)} seeds"
    last = next(m for m in reversed(runs[0].evaluations) if m.get("eval/pass@1") is not None)
    low, high = (float(last.get(f"eval/pass@1/{end}") or math.nan) for end in ("low", "high"))
    return Interval(ends[0], low, high, int(last.get("eval/n") or 0)), f"{last.get('eval/n', DASH)} prompts"


def _ends(interval: Interval | None, sign: str = "") -> str:
    if interval is None or not math.isfinite(interval.low):
        return DASH
    return f"[{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"
