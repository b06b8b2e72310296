"""The result of a run, its times, and the object of `grpo train --json`; also for a run named by `--resume`.

Nothing here needs a model or torch: `recipe_of_run` reads the recipe in a run's folder, and `result_of` the result of a
finished run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_cli.errors import Exit
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.checkpoint import all_checkpoints, find_fault
from grpo_cli.resilience.resume import changed_pace
from grpo_cli.run.find import find_run
from grpo_cli.run.folder import RunFolder, base_of
from grpo_cli.run.follow import is_evaluation
from grpo_cli.run.info import Status
from grpo_cli.run.spent import SpentTime, now, timed


@dataclass
class TrainResult:
    """The result of a run; `before` and `after` are evaluation metrics, `code` is the exit code."""

    run: RunFolder
    steps: int
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    code: Exit = Exit.OK
    checkpoint: Path | None = None
    status: Status = "done"


STEP_PHASES = ("generate", "environment", "verify", "update")
PHASES = ("setup", "warmup", "generate", "verify", "update", "evaluate")


@dataclass
class Stopwatch:
    """Seconds of this process by phase; `imports` is the time before the first phase."""

    began: SpentTime = field(default_factory=now)
    spent: dict[str, SpentTime] = field(default_factory=lambda: {"setup": SpentTime(), "warmup": SpentTime()})

    def timed(self, phase: str) -> AbstractContextManager[None]:
        """Count the time inside to `phase`."""
        return timed(self.spent, phase)

    @property
    def wall_s(self) -> float:
        """Seconds since it began."""
        return (now() - self.began).wall

    def of(self, run: RunFolder) -> dict[str, float]:
        """Wall seconds: these, the phases of the run's steps (earlier processes among them), and `total` of this process."""
        lines, own = run.metrics(), {phase: spent.wall for phase, spent in self.spent.items()}
        seen = [p for p in STEP_PHASES if any(f"time/{p}" in m for m in lines) or p != "environment"]
        steps = {p: sum(m.get(f"time/{p}") or 0.0 for m in lines) for p in seen}
        return {**own, **steps, "total": self.wall_s}

    def phases(self, earlier: Mapping[str, Any], steps: Mapping[str, SpentTime]) -> dict[str, dict[str, float]]:
        """For `run.json`: wall and CPU seconds of every phase of the run. `steps` are the seconds inside steps,
        `earlier` the times that earlier processes of the run recorded."""
        none = SpentTime()
        spent = {"imports": SpentTime(cpu=self.began.cpu), **dict.fromkeys(PHASES, none), **self.spent, **steps}
        before = {phase: SpentTime(noted["wall_s"], noted["cpu_s"]) for phase, noted in earlier.items()}
        return {p: (before.get(p, none) + spent.get(p, none)).as_json() for p in dict.fromkeys([*before, *spent])}


SCHEMA = 1


def summary(outcome: TrainResult) -> dict[str, Any]:
    """The one object of `--json`."""
    return {
        "schema": SCHEMA,
        "run": str(outcome.run.path),
        "steps": outcome.steps,
        "status": outcome.status,
        "before": measured(outcome.before),
        "after": measured(outcome.after),
        "seconds": {name: round(value, 3) for name, value in outcome.seconds.items()},
        "checkpoint": str(outcome.checkpoint) if outcome.checkpoint else None,
    }


def measured(metrics: dict[str, Any] | None) -> dict[str, Any] | None:
    """pass@1 with interval and n, sampled; greedy beside it where it was measured."""
    if metrics is None:
        return None
    found = {"pass@1": metrics["eval/pass@1"], "ci": _ci(metrics, "eval/pass@1"), "n": metrics["eval/n"]}
    found |= {key.removeprefix("eval/"): value for key, value in metrics.items() if re.fullmatch(r"eval/pass@\d+", key)}
    found["think"] = metrics["eval/think"]
    found["without_verdict"] = metrics.get("eval/without_verdict")
    if "eval/greedy" in metrics:
        greedy = {"pass@1": metrics["eval/greedy"], "ci": _ci(metrics, "eval/greedy"), "n": metrics["eval/greedy/n"]}
        found["greedy"] = greedy
    return found


def _ci(metrics: dict[str, Any], key: str) -> list[float]:
    return [metrics[f"{key}/low"], metrics[f"{key}/high"]]


def recipe_of_run(named: str, sets: list[str]) -> tuple[Recipe, Path, str, str]:
    """The recipe in a run's folder, the folder its data paths count from, its name, and the run's folder.

    `named` is a folder, a name under `runs/`, or `last`.
    """
    run = find_run(named)
    manifest = run.manifest()
    base = base_of(run) or Path()
    return (load(str(run.path / "recipe.yaml"), sets, base=base), base, manifest.get("recipe", run.name), str(run.path))


def result_of(run: RunFolder, recipe: Recipe) -> TrainResult | None:
    """The result of a finished run, which has done all steps and was measured at its end; None for a run that is not
    finished."""
    manifest = run.manifest()
    steps = manifest.get("steps")
    if manifest.get("status") != "done" or not isinstance(steps, int) or changed_pace(run, recipe):
        return None
    last = run.checkpoint_path(steps)
    if all_checkpoints(last.parent) and find_fault(last):
        return None  # the last weights are lost or damaged: continue from an older checkpoint
    measured = {m["step"]: m for m in run.metrics() if is_evaluation(m)}
    return TrainResult(
        run,
        steps,
        before=measured.get(0),
        after=measured.get(steps) if steps else None,
        seconds=Stopwatch().of(run),
        code=Exit.BAR_MISSED if manifest.get("reason") else Exit.OK,
        checkpoint=last if last.is_dir() else None,
    )


def lacks_report(run: RunFolder, recipe: Recipe) -> bool:
    """Whether the report that the recipe asks for is missing or older than the last metrics: the run died before it was
    written."""
    page, numbers = run.path / "report.html", run.path / "metrics.jsonl"
    if not recipe.run.report or not numbers.exists():
        return False
    return not page.exists() or page.stat().st_mtime < numbers.stat().st_mtime
