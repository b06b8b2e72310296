"""`grpo report`: run folders to one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[str], typer.Argument(help="Run folders, names under --dir, or `last`.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; without it report.html in the run.")
    ] = None,
    placebo: Annotated[
        list[str] | None, typer.Option(help="A run that should not learn, drawn grey; may be repeated.")
    ] = None,
    dir: Annotated[str, typer.Option(help="Where names are looked up.")] = "runs",
) -> None:
    """Write what a run did as one HTML page that works from disk; several runs are laid over each other.

    \b
    Examples:
      grpo report last
      grpo report runs/seed-1 runs/seed-2 runs/seed-3 --out seeds.html
      grpo report runs/grpo runs/dr-grpo --placebo runs/random-reward
    """
    from grpo_cli.errors import UsageError
    from grpo_cli.report.collect import arms_of, collect
    from grpo_cli.report.page import write_report
    from grpo_cli.run.find import find_run

    folders = {folder.path.resolve(): folder for folder in (find_run(name, dir) for name in runs)}
    against = {folder.path.resolve(): folder for folder in (find_run(name, dir) for name in placebo or [])}
    if shared := folders.keys() & against.keys():
        raise UsageError(f"`{next(iter(shared))}` is both a run and a placebo")
    found = [collect(folder) for folder in folders.values()]
    if out is None:
        if len(found) + len(against) > 1:
            raise UsageError(
                "several runs need a place for their common report", place="--out", hint="--out report.html"
            )
        out = found[0].folder.path / "report.html"
    arms = arms_of(found, [collect(folder) for folder in against.values()])
    typer.echo(write_report(arms, out))
