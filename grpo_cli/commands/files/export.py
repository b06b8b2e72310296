"""`grpo export`: a checkpoint as a model folder that needs nothing of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpo_cli.errors import UsageError


def export(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint or a run.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    push: Annotated[
        str | None, typer.Option(metavar="REPO", help="Also push to this hub repository.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Write into a folder that exists.")] = False,
) -> None:
    """Write a plain Hugging Face folder: LoRA merged into its base, tokenizer and recipe beside it."""
    if out.exists() and not force:
        raise UsageError(f"`{out}` exists", hint="give another folder, or `--force`")
    from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries

    quiet_libraries()
    pin_one_gpu()
    from grpo_cli.jobs.export.folder import push_folder, write_folder

    policy = write_folder(checkpoint, out)
    print(out)
    if push:
        push_folder(policy, push)
        print(push)
