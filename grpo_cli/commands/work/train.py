"""`grpo train`: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
from grpo_cli.commands.quick_import import without_collecting
from grpo_cli.distributed.launch import Nodes, choose_world, is_main_rank, is_rank, launch
from grpo_cli.errors import UsageError
from grpo_cli.text import strict_json


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe file, the name of a shipped recipe, or - for stdin; with --resume RUN the run's own."
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one key; may be repeated."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Continue this run (a folder or a name under runs/); without one the recipe's newest.",
        ),
    ] = None,
    resume_anyway: Annotated[
        bool,
        typer.Option("--resume-anyway", help="Allow changed keys that do not touch the training itself."),
    ] = False,
    display: Annotated[str, typer.Option(help="auto, live, plain, json or none.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one summary object on stdout.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check recipe, rows and golds, show the plan, stop.")
    ] = False,
) -> None:
    """Train a model on rewards that the recipe's verifiers give.

    \b
    Examples:
      grpo train quickstart
      grpo train recipes/gsm8k-qwen2.5-0.5b.yaml --set train.steps=50
      grpo train my.yaml --resume
      grpo train --resume runs/1127-my-k3f9
    """
    from grpo_cli.recipe.checking.strategy import check_processes
    from grpo_cli.recipe.reading.load import find, load

    if recipe is None:
        if resume is None:
            raise UsageError("no recipe", hint="name one, such as `quickstart`, or a run with `--resume RUN`")
        from grpo_cli.jobs.train.own_recipe import recipe_of_run

        checked, base, label, resume = recipe_of_run(resume, sets or [])
    else:
        checked = load(recipe, sets or [])
        base = Path() if recipe == "-" else find(recipe).parent
        label = "stdin" if recipe == "-" else Path(recipe).stem
    quiet_libraries()
    if dry_run:
        from grpo_cli.jobs.train.dry_run import plan_lines

        print("\n".join(plan_lines(checked, base)))
        return
    if not is_rank():
        wanted, nodes = checked.launch, Nodes.of(checked.launch)
        completions = checked.sample.prompts * checked.sample.group
        if completions % nodes.count:
            raise UsageError(
                f"{completions} completions a step do not divide over {nodes.count} machines",
                hint="change `sample.prompts` or `sample.group`",
            )
        world = choose_world(wanted.gpus, wanted.cpu_ranks, completions // nodes.count)
        check_processes(wanted.strategy, world * nodes.count)
        if world * nodes.count > 1:
            if recipe == "-":
                raise UsageError(
                    "a recipe on stdin runs in one process", hint="save it to a file, or set `launch.gpus=1`"
                )
            raise typer.Exit(launch(world, sys.argv[1:], nodes))
        pin_one_gpu()
    from grpo_cli.display.choose import make_display

    shown = make_display(display if is_main_rank() else "none")
    with without_collecting():
        from grpo_cli.jobs.train.job import Job
        from grpo_cli.jobs.train.summary import summary
        from grpo_cli.resilience.resume import find_run

    run = find_run(checked, resume, anyway=resume_anyway) if resume else None
    outcome = Job(checked, label=label, base=base, display=shown).run(run)
    if as_json and is_main_rank():
        print(strict_json(summary(outcome)))
    sys.stdout.flush()
    raise typer.Exit(int(outcome.code))
