"""`grpo init`: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpo_cli.errors import UsageError


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; made if it is not there.")] = Path(),
    task: Annotated[str, typer.Option(help="math, code, regex, json, custom or environment.")] = "math",
    model: Annotated[str | None, typer.Option(help="The model to name in the recipe.")] = None,
    config: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Turn a GRPO config of TRL, open-r1 or axolotl into a recipe."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Write a commented recipe and sample rows to start from.

    \b
    Examples:
      grpo init sums --task math --model builtin:smollm2-135m
      grpo init mine --task custom
      grpo init mine --from config_grpo.yaml
    """
    if config is not None:
        from grpo_cli.jobs.init import as_yaml, convert, listed, read_config
        from grpo_cli.recipe.reading.load import load
        from grpo_cli.starters import write_text

        made = convert(read_config(config))
        if model is not None:
            made.put("model.path", model)
        text = write_text(folder / "recipe.yaml", as_yaml(made, config.name), force)
        print("\n".join([f"wrote {text}", *listed(made)]))
        load(text)
        print(f"next: grpo check {text}")
        return
    from grpo_cli.starters import DEFAULT_MODEL, TASKS, write

    if task not in TASKS:
        raise UsageError(f"no task `{task}`", place="--task", hint=f"there are {', '.join(TASKS)}")
    written = write(task, folder, model or DEFAULT_MODEL, force)
    recipe = next(path for path in written if path.suffix == ".yaml")
    print("\n".join([*(f"wrote {path}" for path in written), f"next: grpo check {recipe}"]))
