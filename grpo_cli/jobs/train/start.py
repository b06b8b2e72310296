"""A run's folder at the start of a process: created, or resumed from its newest complete checkpoint.

`create_run` writes recipe and manifest. `resume_point` finishes a roll-back, finds the newest whole checkpoint, records a new
pace, and moves later records aside. `Seen` compares the contents behind the recipe (files, rows, prompts) with those that the
run began with. All ranks take rank 0's answers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from grpo_cli.display.protocol import Display
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.errors import UsageError, masked
from grpo_cli.jobs.open_job import OpenJob
from grpo_cli.jobs.train.alarm_actions import finish_roll_back
from grpo_cli.policy.cpu_bf16 import cpu_bf16_pays, measure_cpu_bf16, settle_cpu_bf16
from grpo_cli.policy.model import pick_device
from grpo_cli.policy.prompts.prompt import CLOCK, one_of_each
from grpo_cli.recipe.reading.dump import recipe_sha, to_yaml
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience import checkpoint
from grpo_cli.resilience.contents import CONTENTS, Digests, changes, files_behind, prompts_read, refuse_changed
from grpo_cli.resilience.resume import changed_pace
from grpo_cli.reward.judge import proxy_warnings
from grpo_cli.run.about import git_commit, versions
from grpo_cli.run.folder import RunFolder, replace_recipe
from grpo_cli.run.info import RewardSource, RunInfo
from grpo_cli.text import real_path

CHANGED = "changed"
"""The key in `run.json` for the changed contents that `--resume-anyway` accepted, in words."""
CPU_BF16 = "cpu_bfloat16"
"""The key in `run.json` for whether the run uses bfloat16 on its CPU; absent for a run on GPUs."""


def agree_on_cpu_bf16(resume: RunFolder | None, ranks: Ranks, display: Display) -> None:
    """On a CPU all ranks use the dtype that rank 0 measured to be faster; a resumed run uses the dtype that it began
    with.

    A run of an older version, which did not record it, measures again, as that version did.
    """
    chosen = None
    if pick_device(ranks.local).type != "cpu":
        return
    if ranks.is_main:
        # the measurement depends on timing, and may differ between runs on one machine: keep the run's own choice
        # counts
        measured = measure_cpu_bf16()
        noted = resume.manifest().get(CPU_BF16) if resume is not None else None
        chosen = measured if noted is None else bool(noted)
        if chosen and not measured:
            display.note(
                "warn", "the run began with bfloat16, which is slow on this CPU; it goes on in the same numbers"
            )
    settle_cpu_bf16(bool(ranks.agreed(chosen)))


def record_cpu_bf16(run: RunFolder) -> None:
    """In `run.json`, for processes that resume the run."""
    if pick_device().type == "cpu":
        run.update_manifest(**{CPU_BF16: cpu_bf16_pays()})


class Seen:
    """The contents behind a recipe as a process finds them; each part is compared with that of the resumed run. Files
    are compared at once, so that their RecipeError comes before anything is started."""

    def __init__(
        self, resume: RunFolder | None, recipe: Recipe, base: Path | None, display: Display, *, anyway: bool
    ) -> None:
        self.resume, self.display, self.anyway = resume, display, anyway
        self.contents: dict[str, Digests] = {}
        self.changed: list[str] = []
        if resume is not None and CONTENTS not in resume.manifest():
            made = resume.manifest().get("versions", {}).get("grpo", "an earlier version")
            text = f"{resume.name} was begun by grpo {made}, which noted no contents: that its rows, code and templates are"
            display.note("info", f"{text} still the same is not known")
        self.take("files", files_behind(recipe, base))

    def take(self, part: str, found: Digests, *, hint: str = "") -> None:
        """One part as it is now.

        Raises:
            RecipeError: a file, rows or prompts differ from those at the run's beginning, and this is not allowed.
        """
        self.contents[part] = found
        if self.resume is None:
            return
        if not self.anyway:
            refuse_changed(self.resume, part, found, hint=hint)
        for one in changes(self.resume, part, found):
            self.changed.append(f"{one.place}: {one.message}")
            self.display.note("warn", self.changed[-1], hint)

    def record(self) -> None:
        """Record in `run.json` of a resumed run the contents that the next resume compares with, and the accepted
        changes."""
        if self.resume is None:
            return
        earlier = self.resume.manifest().get(CHANGED, [])
        self.resume.update_manifest(
            **{CONTENTS: self.contents}, **({CHANGED: earlier + self.changed} if self.changed else {})
        )

    def take_prompts(self, job: OpenJob) -> None:
        """The token ids of the first prompt of each sequence of roles.

        Raises:
            RecipeError: they differ from those at the run's beginning.
        """
        rows = job.train.rows
        fix = job.policy.prompts.clock(rows)
        if fix is not None and self.resume is None:
            self.display.note("warn", CLOCK, fix)
        first = [job.policy.encode(row) for row in one_of_each(rows)]
        self.take("prompts", prompts_read(first), hint="" if fix is None else f"{CLOCK}; {fix}")


def create_run(job: OpenJob, recipe: Recipe, contents: Mapping[str, Digests], *, label: str, device: str) -> RunFolder:
    """A new folder under `run.dir` with the recipe as it was written; its `run.json` records the inputs of the run."""
    manifest = {
        "recipe": label,
        "argv": ["grpo", *map(masked, sys.argv[1:])],
        "recipe_sha": recipe_sha(recipe),
        "versions": versions(),
        "device": device,
        "seed": recipe.train.seed,
        "git": git_commit(),
        "sandbox": job.judge.sandboxes(),
        "warnings": proxy_warnings(recipe.verify),
        "base": str(real_path(job.base or Path())),
        CONTENTS: contents,
    }
    return RunFolder.create(recipe.run.dir, recipe.run.name, to_yaml(recipe), manifest, label=label)


def run_info(recipe: Recipe, run: RunFolder, *, label: str, device: str, logs: bool) -> RunInfo:
    """The facts about the run that the display shows before the first step."""
    return RunInfo(
        run=run.name,
        recipe=label,
        sha=recipe_sha(recipe),
        model=recipe.model.path,
        folder=str(run.path),
        log=str(run.log_path) if logs else "",
        device=device,
        steps=recipe.train.steps,
        prompts=recipe.sample.prompts,
        group=recipe.sample.group,
        max_tokens=recipe.sample.max_tokens,
        seed=recipe.train.seed,
        sources=tuple(RewardSource(name, spec.weight, spec.primary) for name, spec in recipe.verify.items()),
    )


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def resume_point(
    run: RunFolder, recipe_as_written: Recipe, recipe: Recipe, display: Display, ranks: Ranks
) -> Path | None:
    """The newest complete checkpoint, with later records moved aside; None to start over. A changed number of steps is
    recorded in the run.

    Raises:
        UsageError: the run has already done more steps than requested.
    """
    found: checkpoint.Checkpoint | None = None
    if ranks.is_main:
        # before the newest checkpoint is searched: the roll-back removes some
        finish_roll_back(run)
        found, broken = checkpoint.newest_valid(run.path / "checkpoints")
        for one, fault in broken:
            display.note(
                "warn", f"checkpoint {one.path.name} is broken: {fault}; set aside as {checkpoint.set_aside(one).name}"
            )
        done = found.step if found else 0
        changed = changed_pace(run, recipe_as_written)
        if changed:
            train = recipe.train
            if train.steps < done:
                raise UsageError(
                    f"the run has done {done} steps, and `train.steps` is {train.steps} now",
                    place=str(run.path),
                    hint=f"more than {done} lets it go on; a new run can start from one of its checkpoints (`model: PATH`)",
                )
            changed_words = ", ".join(f"`{key}` {_shown(old)} → {_shown(new)}" for key, (old, new) in changed.items())
            rate = f"a constant rate of {train.lr:g}"
            if train.schedule != "constant":
                rate = f"the {train.schedule} rate of a run of {train.steps} steps from {train.lr:g}, taken up at step {done}"
            display.note("info", f"{run.name} goes on from step {done} to {train.steps}: {changed_words}; {rate}")
            changes = [*run.manifest().get("pace", []), {"step": done, **{k: list(v) for k, v in changed.items()}}]
            # this becomes the run's recipe: `--resume` compares with it, and evaluation reads it
            replace_recipe(run, to_yaml(recipe_as_written))
            run.update_manifest(pace=changes, recipe_sha=recipe_sha(recipe_as_written))
        gone = run.move_aside(found.step if found else -1)
        words = (
            f"resuming {run.name} from {found.path.name}" if found else f"{run.name} has no checkpoint: starting over"
        )
        aside = f"; records of {gone} later steps moved to *.abandoned" if gone else ""
        display.note("info", words + aside)
        run.update_manifest(status="running", reason=None)
    return ranks.agreed(found.path if found else None)
