"""`grpo train`: parse, call, print."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

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
    from grpo_cli.jobs.open_job import open_first, splits_of
    from grpo_cli.recipe.arithmetic import plan
    from grpo_cli.recipe.reading.load import load_with_folder
    from grpo_cli.recipe.reading.source import label_of
    from grpo_cli.resilience.checkpoint import pinned

    if recipe is None:
        if resume is None:
            raise UsageError("no recipe", hint="name one, such as `quickstart`, or a run with `--resume RUN`")
        from grpo_cli.jobs.train.result import recipe_of_run

        checked, base, label, resume = recipe_of_run(resume, sets or [])
    else:
        loaded, base = load_with_folder(recipe, sets or [])
        checked, label = pinned(loaded), label_of(recipe)
    quiet_libraries()
    if dry_run:
        raise typer.Exit(int(show_plan(checked, base, recipe or label, as_json=as_json)))
    run = None
    if resume:
        from grpo_cli.resilience.resume import find_run

        run = find_run(checked, resume, anyway=resume_anyway)
    if run is not None and not is_rank():
        from grpo_cli.jobs.train.result import result_of
        from grpo_cli.resilience.contents import files_behind, refuse_changed

        if checked.stages is None and (over := result_of(run, checked)) is not None:
            _answer(over, checked, display, as_json=as_json)
        if not resume_anyway:  # before torch is loaded
            refuse_changed(run, "files", files_behind(checked, base))
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


def _answer(over: TrainResult, recipe: Recipe, display: str, *, as_json: bool) -> NoReturn:
    """Leave with what a run came to that has nothing left to do."""
    from grpo_cli.display.choose import make_display
    from grpo_cli.display.watch import card_of
    from grpo_cli.jobs.train.ending import write_own_report
    from grpo_cli.jobs.train.result import lacks_report

    wipe()
    shown = make_display(display)
    try:
        if lacks_report(over.run, recipe):
            write_own_report(over.run, shown)
        shown.finish(card_of(over.run))
    finally:
        shown.close()
    more = f"`grpo train --resume {over.run.path} --set train.steps=N` goes on to step N"
    print(f"all of its {over.steps} steps are done: {more}", file=sys.stderr)
    _end(over, as_json=as_json)
    raise typer.Exit(int(over.code))


def _end(outcome: TrainResult, *, as_json: bool) -> None:
    from grpo_cli.jobs.train.result import summary

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
        from grpo_cli.display.terminal.keys import relayed_keys

        raise typer.Exit(launch(world, sys.argv[1:], nodes, relayed_keys))
