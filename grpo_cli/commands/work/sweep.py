"""`grpo sweep`: parse, call, print."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

from grpo_cli.commands import completing, options
from grpo_cli.errors import Exit
from grpo_cli.text import strict_json


def sweep(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe file or the name of a shipped recipe; none with --resume.", autocompletion=completing.recipes
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=V1,V2",
            help="Values of one key; several keys are combined.",
            autocompletion=completing.settings,
        ),
    ] = None,
    trust: options.Trust = False,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs of each combination, seeds counted up.")] = 1,
    name: Annotated[str | None, typer.Option(help="The sweep's name, in front of its runs' names.")] = None,
    dir: Annotated[str | None, typer.Option(help="Where the runs lie; default the recipe's run.dir.")] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, max=64, help="Runs at the same time; default one for each GPU.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="[SWEEP]", help="Go on with this sweep, or the newest.")
    ] = None,
    display: options.Face = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Name the runs, start none.")] = False,
    as_json: options.SummaryAsJson = False,
) -> None:
    """Train with several values and seeds, then compare with intervals.

    \b
    Examples:
      grpo sweep quickstart --seeds 5
      grpo sweep my.yaml --seeds 3 --set train.lr=1e-6,3e-6 --set sample.group=4,8
      grpo sweep --resume
    """
    from dataclasses import asdict

    from grpo_cli.errors import UsageError
    from grpo_cli.jobs.sweep import SCHEMA, make_plan, read_plan

    if (recipe is None) == (resume is None) or (resume is not None and (sets or seeds > 1 or name)):
        hint = "grpo sweep RECIPE --seeds 3, or grpo sweep --resume NAME"
        raise UsageError("either a recipe to begin with, or a sweep to go on with", hint=hint)
    if resume is not None:
        plan = read_plan(resume, dir or "runs")
    else:
        plan = make_plan(str(recipe), sets or [], seeds, name, dir)
    if dry_run:
        runs = [asdict(run) for run in plan.runs]
        planned = {"schema": SCHEMA, "sweep": plan.name, "recipe": plan.recipe, "runs": runs}
        print(strict_json(planned) if as_json else "\n".join(run.name for run in plan.runs))
        return
    if resume is None:
        if plan.path.exists():
            hint = f"grpo sweep --resume {plan.name}"
            raise UsageError(f"the sweep `{plan.name}` exists already", place="--name", hint=hint)
        plan.write()
    from grpo_cli.distributed.launch import gpu_count
    from grpo_cli.jobs.sweep import ended_object, outcomes, run_all, seats_of, table_of

    _tell(f"sweep {plan.name}: {len(plan.runs)} runs in {plan.dir}")
    seats = seats_of(gpu_count(), at_once, os.environ.get("CUDA_VISIBLE_DEVICES"))
    ended = run_all(plan, seats, display, _tell)
    if as_json:
        print(strict_json(ended_object(plan, ended.codes)))
    else:
        print("\n".join(table_of(outcomes(plan))))
    if ended.code > Exit.BAR_MISSED:
        where = "" if plan.dir == "runs" else f" --dir {shlex.quote(plan.dir)}"
        _tell(f"next: grpo sweep --resume {plan.name}{where}")
    raise typer.Exit(int(ended.code))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
