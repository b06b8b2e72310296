"""`stages`: one run after the other in one folder, each from the best weights of the last; one chain of metrics over all.

RUN/run.json, recipe.yaml           the whole
RUN/metrics.jsonl, samples/, eval/  of all stages on one axis of steps: what `grpo report RUN` draws
RUN/stage-1-NAME/                   a run like any other
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from grpo_cli.display.protocol import Display
from grpo_cli.errors import DataError, Exit
from grpo_cli.jobs.train.ending import write_own_report
from grpo_cli.jobs.train.job import Job
from grpo_cli.jobs.train.result import TrainResult
from grpo_cli.jobs.train.start import Seen
from grpo_cli.recipe.reading.dump import recipe_sha, stage_folder, stage_recipe, to_yaml
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience import checkpoint
from grpo_cli.resilience.contents import CONTENTS, Digests
from grpo_cli.resilience.lock import hold
from grpo_cli.run.about import git_commit, versions
from grpo_cli.run.folder import FOLDERS, RunFolder
from grpo_cli.run.info import of_all_rows
from grpo_cli.run.lines import replace as replace_file
from grpo_cli.run.records import dump_line
from grpo_cli.text import real_path

PASS_1 = "eval/pass@1"


@dataclass(frozen=True)
class StageResult:
    """The result of a stage: held-out metrics before and after it."""

    name: str
    run: RunFolder
    steps: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    def line(self) -> str:
        """`stage-2-sft  10 steps  held-out pass@1 0.412 [0.38, 0.44] → 0.480 [0.45, 0.51]  n 256`."""
        said = f"{self.run.name}  {self.steps} steps"
        if self.before is None or self.after is None:
            return said
        return f"{said}  held-out pass@1 {_score(self.before)} → {_score(self.after)}  n {self.after['eval/n']}"

    def as_json(self) -> dict[str, Any]:
        """For `run.json`."""
        measured = {"before": self.before, "after": self.after}
        keys = {"pass@1": PASS_1, "low": f"{PASS_1}/low", "high": f"{PASS_1}/high", "n": "eval/n"}
        return {
            "name": self.name,
            "folder": self.run.name,
            "steps": self.steps,
            **{k: None if m is None else {name: m[key] for name, key in keys.items()} for k, m in measured.items()},
        }


class StageChain:
    """The stages of a recipe in one folder."""

    def __init__(self, recipe: Recipe, *, label: str, base: Path | None, display: Callable[[], Display]) -> None:
        assert recipe.stages is not None
        self.recipe, self.stages, self.label, self.base = recipe, recipe.stages, label, base
        self.display = display
        self.done: list[StageResult] = []
        self.lines: list[str] = []

    def run(self, resume: RunFolder | None = None, *, anyway: bool = False) -> TrainResult:
        """Run every unfinished stage; a stage that fails or pauses ends the chain.

        Raises:
            UserError: as a run does; what was reached is saved, and a resume goes on in that stage.
        """
        self.anyway, shown = anyway, self.display()
        try:
            seen = Seen(resume, self.recipe, self.base, shown, anyway=anyway)
        finally:
            shown.close()
        whole = resume or self._create(seen.contents)
        with hold(whole.path):
            whole.update_manifest(status="running")
            seen.record()
            try:
                result = self._stage(whole, 0)
                for at in range(1, len(self.stages)):
                    if result.code is Exit.OK:
                        result = self._stage(whole, at)
            except BaseException:
                whole.update_manifest(status="failed")
                raise
            steps = sum(one.steps for one in self.done)
            status = "done" if result.code is Exit.OK else result.status
            whole.update_manifest(status=status, steps=steps)
            display = self.display()
            for one in self.done:
                display.note("good", one.line())
            wanted = self.recipe.run.report and self.done and status != "interrupted"
            if wanted and (page := write_own_report(whole, display)):
                display.note("info", f"report {page}")
            display.close()
            first, last = self.done[:1], self.done[-1:]
            return replace(
                result,
                run=whole,
                steps=steps,
                before=first[0].before if first else None,
                after=last[0].after if last else None,
            )

    def _create(self, contents: Mapping[str, Digests]) -> RunFolder:
        manifest = {
            "recipe": self.label,
            "recipe_sha": recipe_sha(self.recipe),
            "versions": versions(),
            "seed": self.recipe.train.seed,
            "git": git_commit(),
            "base": str(real_path(self.base or Path())),
            CONTENTS: contents,
        }
        recipe = self.recipe
        return RunFolder.create(recipe.run.dir, recipe.run.name, to_yaml(recipe), manifest, label=self.label)

    def _stage(self, whole: RunFolder, at: int) -> TrainResult:
        """Run one stage; a finished stage only returns its result."""
        stage = self.stages[at]
        path = whole.path / stage_folder(at, stage)
        run = RunFolder.open(path) if (path / "run.json").is_file() else None
        if run is not None and run.manifest().get("status") == "done":
            result = TrainResult(run, int(run.manifest()["steps"]))
        else:
            start = None
            if at and stage.start != "base":
                before = RunFolder.open(whole.path / stage_folder(at - 1, self.stages[at - 1]))
                start = last_weights(before) if stage.start == "last" else best_weights(before)
            recipe = stage_recipe(self.recipe, at, start=start, folder=whole.path, base=self.base)
            display = self.display()
            source = "the recipe's model" if start is None else f"{start.parent.parent.name}/{start.name}"
            display.note("info", f"stage {at + 1} of {len(self.stages)}: {stage.name}, from {source}")
            result = Job(recipe, label=stage.name, base=self.base, display=display).run(run, anyway=self.anyway)
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        if result.code is Exit.OK:
            offset, run = sum(one.steps for one in self.done), result.run
            lines = run.metrics()
            evaluations = {int(line["step"]): line for line in lines if PASS_1 in line}
            ends = evaluations.get(0), evaluations.get(result.steps)
            self.done.append(StageResult(stage.name, run, result.steps, *ends))
            self.lines += [
                dump_line({**line, "step": int(line["step"]) + offset, "stage": stage.name}) for line in lines
            ]
            replace_file(whole.path / "metrics.jsonl", self.lines)
            for split in FOLDERS:
                for step in run.steps(split):
                    target = whole.sample_path(step + offset, split)
                    target.parent.mkdir(exist_ok=True)
                    if target.exists():  # the measurement before a stage is the one after the previous stage
                        continue
                    try:
                        os.link(run.sample_path(step, split), target)
                    except OSError:  # another file system, or one without links
                        shutil.copyfile(run.sample_path(step, split), target)
            whole.update_manifest(stages=[one.as_json() for one in self.done])
        return result


def best_weights(run: RunFolder) -> Path:
    """The whole checkpoint with the best held-out pass@1, the latest of equals; the last where none was measured.

    Raises:
        DataError: no whole checkpoint.
    """
    scores = {int(m["step"]): m[PASS_1] for m in of_all_rows(run.metrics()) if PASS_1 in m}
    saved = [c for c in checkpoint.all_checkpoints(run.path / "checkpoints") if c.step in scores]
    for one in sorted(saved, key=lambda c: (scores[c.step], c.step), reverse=True):
        if checkpoint.find_fault(one.path) is None:
            return one.path
    return last_weights(run)


def last_weights(run: RunFolder) -> Path:
    """The last whole checkpoint.

    Raises:
        DataError: there is none.
    """
    newest, _ = checkpoint.newest_valid(run.path / "checkpoints")
    if newest is None:
        raise DataError("the stage has no whole checkpoint to go on from", place=str(run.path))
    return newest.path


def _score(metrics: dict[str, Any]) -> str:
    return f"{metrics[PASS_1]:.3f} [{metrics[f'{PASS_1}/low']:.3f}, {metrics[f'{PASS_1}/high']:.3f}]"
