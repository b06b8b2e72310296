"""A run that a `--resume` finds at its end: what it came to, without a model and without torch."""

from __future__ import annotations

from grpo_cli.errors import Exit
from grpo_cli.jobs.train.result import Stopwatch, TrainResult
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.checkpoint import all_checkpoints, find_fault
from grpo_cli.resilience.resume import changed_pace
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.follow import is_evaluation


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
