"""The run that `--resume` names, read without a model and without torch: its recipe, and what it came to where it is over."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.errors import Exit
from grpo_cli.jobs.train.result import Stopwatch, TrainResult
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.checkpoint import all_checkpoints, find_fault
from grpo_cli.resilience.resume import changed_pace
from grpo_cli.run.find import find_run
from grpo_cli.run.folder import RunFolder, base_of
from grpo_cli.run.follow import is_evaluation


def recipe_of_run(named: str, sets: list[str]) -> tuple[Recipe, Path, str, str]:
    """The recipe in a run's folder, the folder its data paths count from, its name, and the run's folder.

    `named` is a folder, a name under `runs/`, or `last`.
    """
    run = find_run(named)
    manifest = run.manifest()
    base = base_of(run) or Path()
    return (load(str(run.path / "recipe.yaml"), sets, base=base), base, manifest.get("recipe", run.name), str(run.path))


def result_of(run: RunFolder, recipe: Recipe) -> TrainResult | None:
    """What a run came to that has done all the recipe asks for and was measured at its end; None of one that goes on."""
    manifest = run.manifest()
    steps = manifest.get("steps")
    if manifest.get("status") != "done" or not isinstance(steps, int) or changed_pace(run, recipe):
        return None
    last = run.checkpoint_path(steps)
    if all_checkpoints(last.parent) and find_fault(last):
        return None  # its last weights are lost or damaged: an older checkpoint brings them back
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
    """Whether the page that the recipe asks for is not there, or older than the last numbers: the run died before it was
    written."""
    page, numbers = run.path / "report.html", run.path / "metrics.jsonl"
    if not recipe.run.report or not numbers.exists():
        return False
    return not page.exists() or page.stat().st_mtime < numbers.stat().st_mtime
