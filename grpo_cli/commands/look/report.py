"""`grpo report`: run folders to one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpo_cli.commands import completing


def report(
    runs: Annotated[
        list[str], typer.Argument(help="Run folders, names under --dir, or `last`.", autocompletion=completing.runs)
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file; without it report.html or comparison.html in the first run."),
    ] = None,
    against: Annotated[list[str] | None, typer.Option(help="A run to compare the first with; may be repeated.")] = None,
    placebo: Annotated[
        list[str] | None,
        typer.Option(help="The same for a run that should not learn; those with `train.control` are found."),
    ] = None,
    dir: Annotated[str, typer.Option(help="Where names are looked up.")] = "runs",
) -> None:
    """Write what a run did as one HTML page that works from disk.

    Several runs are laid over each other.

    \b
    Examples:
      grpo report last
      grpo report runs/seed-1 runs/seed-2 runs/seed-3 --out seeds.html
      grpo report runs/grpo --against runs/grpo-random --against runs/dr-grpo
    """
    from grpo_cli.errors import UsageError
    from grpo_cli.findings.run_data import arms_of, collect
    from grpo_cli.jobs.report.page import write_report
    from grpo_cli.run.find import find_run

    folders = {f.path.resolve(): f for f in (find_run(name, dir) for name in [*runs, *(against or [])])}
    placebos = {f.path.resolve(): f for f in (find_run(name, dir) for name in placebo or [])}
    if shared := folders.keys() & placebos.keys():
        raise UsageError(f"`{next(iter(shared))}` is both a run and a placebo")
    found = [collect(folder) for folder in folders.values()]
    if out is None:
        if len(runs) > 1:
            raise UsageError(
                "several runs need a place for their common report", place="--out", hint="--out report.html"
            )
        name = "comparison.html" if len(found) + len(placebos) > 1 else "report.html"
        out = found[0].folder.path / name
    arms = arms_of(found, [collect(folder) for folder in placebos.values()])
    typer.echo(write_report(arms, out))
