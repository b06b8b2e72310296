"""`grpo init`: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpo_cli.errors import UsageError


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; made if it is not there.")] = Path(),
    task: Annotated[str, typer.Option(help="math, code, regex, json or custom.")] = "math",
    model: Annotated[str | None, typer.Option(help="The model to name in the recipe.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Write a commented recipe and sample rows to start from.

    \b
    Examples:
      grpo init sums --task math --model builtin:smollm2-135m
      grpo init mine --task custom
    """
    from grpo_cli.starters import DEFAULT_MODEL, TASKS, write

    if task not in TASKS:
        raise UsageError(f"no task `{task}`", place="--task", hint=f"there are {', '.join(TASKS)}")
    written = write(task, folder, model or DEFAULT_MODEL, force)
    recipe = next(path for path in written if path.suffix == ".yaml")
    print("\n".join([*(f"wrote {path}" for path in written), f"next: grpo check {recipe}"]))
