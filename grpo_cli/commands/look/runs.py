"""`grpo runs …`: parse, call, print."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from grpo_cli.commands import completing, options
from grpo_cli.text import strict_json

Dir = Annotated[str, typer.Option("--dir", help="The folder that holds the runs.")]
Run = Annotated[
    str, typer.Argument(help="A run folder, a run's name under --dir, or `last`.", autocompletion=completing.runs)
]

runs = typer.Typer(invoke_without_command=True, help="List runs; show, compare and remove them.", rich_markup_mode=None)


@runs.callback()
def _root(
    context: typer.Context,
    dir: Dir = "runs",
    sort: Annotated[
        str, typer.Option(help="started, name, status, recipe, step, score, best, gain, reward, time or size.")
    ] = "started",
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    status: Annotated[
        list[str] | None, typer.Option(help="Only runs of this status, such as running or failed; may be repeated.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the runs under a folder, the newest first.

    \b
    Examples:
      grpo runs
      grpo runs --sort gain
      grpo runs --json | jq -r '.runs[] | select(.status == "done") | .path'
    """
    if context.invoked_subcommand is not None:
        return
    from grpo_cli.jobs.runs import HEADER, SCHEMA, listed, rows_of, table

    found = listed(Path(dir), sort, reverse, status or [])
    if as_json:
        print(strict_json({"schema": SCHEMA, "runs": [one.as_json() for one in found]}))
        return
    if not found:
        print(f"no run under `{dir}`" + (" of this status" if status else ""), file=sys.stderr)
        return
    asked = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if asked else None
    print("\n".join(table(HEADER, rows_of(found), width)))


@runs.command()
def show(run: Run = "last", dir: Dir = "runs", as_json: options.AsJson = False) -> None:
    """Show one run: what it was, how it ended, its held-out scores.

    \b
    Examples:
      grpo runs show last
      grpo runs show 1127-gsm8k-k3f9 --json
    """
    from grpo_cli.jobs.runs import lines_of, run_object
    from grpo_cli.run.find import find_run

    folder = find_run(run, dir)
    print(strict_json(run_object(folder)) if as_json else "\n".join(lines_of(folder)))


@runs.command()
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN…", help="Two runs or more; each is held against the first.", autocompletion=completing.runs
        ),
    ],
    dir: Dir = "runs",
    as_json: options.AsJson = False,
) -> None:
    """Compare the recipes and the held-out scores of runs.

    It says which keys differ, and pairs the scores by row.

    \b
    Examples:
      grpo runs compare runs/grpo runs/dr-grpo
      grpo runs compare 1127-gsm8k-k3f9 last --json
    """
    from grpo_cli.errors import UsageError
    from grpo_cli.jobs.runs import SCHEMA, compare_runs, compared_lines
    from grpo_cli.run.find import find_run

    folders = [find_run(name, dir) for name in names]
    if len({folder.path.resolve() for folder in folders}) < max(2, len(folders)):
        raise UsageError("a comparison needs two different runs", hint="grpo runs compare RUN OTHER")
    first, others = compare_runs(folders)
    if as_json:
        body = {"schema": SCHEMA, "first": first.as_json(), "others": [one.as_json() for one in others]}
        print(strict_json(body))
    else:
        print("\n".join(compared_lines(first, others)))


@runs.command()
def remove(
    names: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Run folders or names under --dir.", autocompletion=completing.runs),
    ],
    dir: Dir = "runs",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also a run that seems to be running.")] = False,
) -> None:
    """Delete runs, asking first.

    Their checkpoints, samples and logs go with them.

    \b
    Examples:
      grpo runs remove 1127-gsm8k-k3f9
      grpo runs remove $(grpo runs --status failed --json | jq -r '.runs[].path')
    """
    from grpo_cli.errors import UsageError
    from grpo_cli.jobs.runs import HEADER, removable, rows_of, size_text, table
    from grpo_cli.jobs.runs import remove as delete
    from grpo_cli.run.find import LAST, find_run

    if LAST in names:
        raise UsageError("`last` is not deleted: it may be another run by now", hint="name the run")
    folders = {folder.path.resolve(): folder for folder in (find_run(name, dir) for name in names)}
    found = removable(list(folders.values()), force)
    print("\n".join(table(HEADER, rows_of(found))))
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody is here to ask", place="--yes", hint="say --yes to delete these runs")
        if not typer.confirm(f"delete {'this run' if len(found) == 1 else f'these {len(found)} runs'}?"):
            print("nothing was deleted")
            return
    print(f"deleted, {size_text(delete(found))} freed")
