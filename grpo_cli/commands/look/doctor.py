"""`grpo doctor`: what this machine can do, with the sandbox's self-test; or what is wrong with a run."""

from __future__ import annotations

from typing import Annotated

import typer

from grpo_cli.commands import completing


def doctor(
    run: Annotated[
        str | None, typer.Argument(help="A run folder, a name under --dir, or `last`.", autocompletion=completing.runs)
    ] = None,
    least: Annotated[
        str, typer.Option(help="The least sandbox that will do: namespaces, landlock, weak.")
    ] = "landlock",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    dir: Annotated[str, typer.Option(help="Where names of runs are looked up.")] = "runs",
) -> None:
    """Say what this machine can do, or what is wrong with a run.

    Without a run also what the sandbox holds; with one, what its metrics and samples show to be wrong.

    Exits with 4 if there is no sandbox for model code, with 1 if a finding stands: versions that clash, too little room,
    or, for a run, anything that it shows. Each finding of a run comes with its evidence and the completions behind it.

    \b
    Examples:
      grpo doctor
      grpo doctor --json | jq .sandbox.tier
      grpo doctor last
    """
    if run is not None:
        from grpo_cli.jobs.doctor import examine_run

        raise typer.Exit(examine_run(run, dir, json))
    from grpo_cli.jobs.doctor import examine_machine

    raise typer.Exit(examine_machine(least, json, dir))
