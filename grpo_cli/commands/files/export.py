"""`grpo export`: a checkpoint as a model folder that needs nothing of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpo_cli.errors import SetupError, UsageError


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
    import torch

    from grpo_cli.recipe.reading.dump import to_yaml
    from grpo_cli.resilience.opened import find_place, open_model

    place = find_place(checkpoint, None, [])
    loaded = open_model(place, torch.device("cpu"))
    model = loaded.model.merge_and_unload() if hasattr(loaded.model, "peft_config") else loaded.model
    try:
        model.save_pretrained(out)
        loaded.tokenizer.save_pretrained(out)
        (out / "recipe.yaml").write_text(to_yaml(place.recipe))
    except OSError as err:
        raise SetupError(f"cannot write `{out}`: {err.strerror}") from err
    print(out)
    if push:
        try:
            model.push_to_hub(push)
            loaded.tokenizer.push_to_hub(push)
        except OSError as err:
            raise SetupError(
                f"cannot push to `{push}`: {err}", hint="is `hf auth login` done and the hub reachable?"
            ) from err
        print(push)
