"""`grpo train`: parse, call, print."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpo_cli.commands import options
from grpo_cli.commands.checking import show_plan
from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
from grpo_cli.commands.opening import loading, wipe
from grpo_cli.distributed.launch import choose_processes, gpu_count, is_main_rank, is_rank, launch, refuse_stdin
from grpo_cli.errors import UsageError
from grpo_cli.text import strict_json

if TYPE_CHECKING:
    from grpo_cli.jobs.train.result import TrainResult
    from grpo_cli.recipe.sections.recipe import Recipe
    from grpo_cli.run.folder import RunFolder


def train(
    recipe: options.RecipeOrOwn = None,
    sets: options.Sets = None,
    trust: options.Trust = False,
    resume: options.Resume = None,
    resume_anyway: options.ResumeAnyway = False,
    display: options.Face = "auto",
    as_json: options.SummaryAsJson = False,
    dry_run: options.DryRun = False,
) -> None:
    """Train a model on rewards that the recipe's verifiers give.

    \b
    Examples:
      grpo train quickstart
      grpo train gsm8k-qwen2.5-0.5b --set train.steps=50
      grpo train my.yaml --resume
      grpo train --resume runs/1127-my-k3f9
    """
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.workplace import open_first, splits_of
    from grpo_cli.recipe.arithmetic import plan
    from grpo_cli.recipe.reading.load import folder_of, label_of, load
    from grpo_cli.resilience.starts import pinned

    if recipe is None:
        if resume is None:
            raise UsageError("no recipe", hint="name one, such as `quickstart`, or a run with `--resume RUN`")
        from grpo_cli.jobs.train.own_recipe import recipe_of_run

        checked, base, label, resume = recipe_of_run(resume, sets or [])
    else:
        checked = pinned(load(recipe, sets or []))
        base = folder_of(recipe)
        label = label_of(recipe)
    quiet_libraries()
    if dry_run:
        raise typer.Exit(int(show_plan(checked, base, recipe or label, as_json=as_json)))
    run = _resumed(checked, resume, anyway=resume_anyway) if resume else None
    if run is not None and not is_rank():
        _answer_if_over(run, checked, display, as_json=as_json)
        if not resume_anyway:
            _refuse_changed(run, checked, base)
    if not is_rank():
        _launch_ranks(checked, base, begins=run is None, is_stdin=recipe == "-")
        pin_one_gpu()
    shown = make_display(display if is_main_rank() else "none")
    if checked.stages is not None:
        with loading("train"):
            from grpo_cli.jobs.train.stages import StageChain
        shown.close()
        chain = StageChain(checked, label=label, base=base, display=lambda: make_display(display))
        outcome = chain.run(run, anyway=resume_anyway)
    else:
        with open_first(checked, base, splits_of(checked)) as rows:
            plan(checked, len(rows.train.rows))
            with loading("train"):
                from grpo_cli.jobs.train.job import Job
            outcome = Job(checked, label=label, base=base, display=shown).run(run, rows, anyway=resume_anyway)
    if is_main_rank():
        _end(outcome, as_json=as_json)
    raise typer.Exit(int(outcome.code))


def _resumed(recipe: Recipe, named: str, *, anyway: bool) -> RunFolder:
    from grpo_cli.resilience.resume import find_run

    return find_run(recipe, named, anyway=anyway)


def _refuse_changed(run: RunFolder, recipe: Recipe, base: Path) -> None:
    """Before torch is loaded: raises RecipeError where a file behind the recipe is another one."""
    from grpo_cli.resilience.contents import files_behind, refuse_changed

    refuse_changed(run, "files", files_behind(recipe, base))


def _answer_if_over(run: RunFolder, recipe: Recipe, display: str, *, as_json: bool) -> None:
    """Leave with what the run came to where nothing is left to do; else return."""
    from grpo_cli.display.choose import make_display
    from grpo_cli.display.watch.run import card_of
    from grpo_cli.jobs.train.ending import write_own_report
    from grpo_cli.jobs.train.over import lacks_report, result_of

    if recipe.stages is not None or (outcome := result_of(run, recipe)) is None:
        return
    wipe()
    shown = make_display(display)
    try:
        if lacks_report(run, recipe):
            write_own_report(run, shown)
        shown.finish(card_of(run))
    finally:
        shown.close()
    print(
        f"all of its {outcome.steps} steps are done: `grpo train --resume {run.path} --set train.steps=N` goes on to step N",
        file=sys.stderr,
    )
    _end(outcome, as_json=as_json)
    raise typer.Exit(int(outcome.code))


def _end(outcome: TrainResult, *, as_json: bool) -> None:
    from grpo_cli.jobs.train.summary import summary

    if as_json:
        print(strict_json(summary(outcome)))
    sys.stdout.flush()


def _launch_ranks(recipe: Recipe, base: Path, *, begins: bool, is_stdin: bool) -> None:
    """Leave with the code of the ranks where the recipe runs in several processes; else return. What cannot be is refused
    first, before torch is imported; `begins`: the run has no folder yet."""
    from grpo_cli.jobs.refusals import questions, sources

    nodes, world = choose_processes(recipe)
    needs = questions(recipe, world * nodes.count, on_gpu=gpu_count() > 0, begins=begins)
    for question in chain(needs, sources(recipe, base)):
        question.ask()
    if world * nodes.count > 1:
        wipe()
        if is_stdin:
            refuse_stdin(world * nodes.count)
        from grpo_cli.display.terminal.relay import relayed_keys

        raise typer.Exit(launch(world, sys.argv[1:], nodes, relayed_keys))
