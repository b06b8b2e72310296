"""Commands that write files: `init` a recipe to start from, `export` a model folder that needs nothing of ours, `schema` for editors."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from grpo_cli.commands import completing
from grpo_cli.errors import UsageError


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; made if it is not there.")] = Path(),
    task: Annotated[str, typer.Option(help="math, code, regex, json, custom or environment.")] = "math",
    model: Annotated[str | None, typer.Option(help="The model to name in the recipe.")] = None,
    config: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Turn a GRPO config of TRL, open-r1 or axolotl into a recipe."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="Choose settings that fit this card, such as h100 or 4090; 2xh100 for two.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Write a commented recipe and sample rows to start from.

    \b
    Examples:
      grpo init sums --task math --model builtin:smollm2-135m
      grpo init mine --task custom
      grpo init sums --model Qwen/Qwen3-8B --gpu 4090
      grpo init mine --from config_grpo.yaml
    """
    if config is not None:
        if gpu is not None:
            said = "`--gpu` chooses settings, and `--from` takes over those of a file"
            raise UsageError(said, hint="leave one of the two out; `grpo check --gpu` says whether they fit")
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
    model = model or DEFAULT_MODEL
    if gpu is None:
        written, lines, asked = write(task, folder, model, force), list[str](), ""
    else:
        from grpo_cli.jobs.init import settings_for
        from grpo_cli.sizing.choose import write_into

        chosen = settings_for(task, model, gpu)
        written = write(task, folder, model, force, lambda text: write_into(text, chosen))
        lines, asked = chosen.lines(), f" --gpu {shlex.quote(gpu)}"
    recipe = next(path for path in written if path.suffix == ".yaml")
    print("\n".join([*(f"wrote {path}" for path in written), *lines, f"next: grpo check {recipe}{asked}"]))


def export(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint or a run.", autocompletion=completing.runs)],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    push: Annotated[str | None, typer.Option(metavar="REPO", help="Also push to this hub repository.")] = None,
    form: Annotated[
        Literal["folder", "gguf"],
        typer.Option("--format", help="folder, or gguf: also one file for llama.cpp, and Ollama's Modelfile."),
    ] = "folder",
    precision: Annotated[
        Literal["auto", "f32", "f16", "bf16", "q8_0"],
        typer.Option(help="Of the matrices in the .gguf file; auto: as the weights, float32 as f16."),
    ] = "auto",
    force: Annotated[bool, typer.Option(help="Write into a folder that exists.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Push into a repository that exists without asking.")
    ] = False,
) -> None:
    """Write a plain Hugging Face folder, LoRA merged into its base.

    Tokenizer, recipe and a model card lie beside the weights; with `--format gguf` also one file for llama.cpp and
    Ollama.

    \b
    Examples:
      grpo export last my-model
      grpo export runs/1127-my-k3f9 my-model --push me/my-model
      grpo export last mine --format gguf && ollama create mine -f mine/Modelfile
    """
    if precision != "auto" and form != "gguf":
        raise UsageError("`--precision` is of the .gguf file", hint="say `--format gguf` as well")
    if out.exists() and not force:
        raise UsageError(f"`{out}` exists", hint="give another folder, or `--force`")
    from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
    from grpo_cli.commands.opening import loading
    from grpo_cli.resilience.model_source import find_model_source
    from grpo_cli.run.lines import refuse_closed

    refuse_closed(out)
    source = find_model_source(checkpoint, None, [])
    quiet_libraries()
    pin_one_gpu()
    with loading("export"):
        from grpo_cli.jobs.export.folder import is_there, push_folder, write_folder

    if push and is_there(push) and not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"`{push}` exists on the hub", place="--push", hint="say --yes to overwrite it")
        if not typer.confirm(f"`{push}` exists on the hub; overwrite its files?"):
            print("nothing was exported")
            return
    write_folder(source, out, precision if form == "gguf" else None)
    print(out)
    if push:
        push_folder(out, push)
        print(push)


def schema() -> None:
    """Print the JSON Schema of a recipe.

    For completion in an editor, write it to a file and name that in the recipe's first line:

        grpo schema > grpo.schema.json

        # yaml-language-server: $schema=grpo.schema.json
    """
    from grpo_cli.recipe.schema import recipe_schema

    print(json.dumps(recipe_schema(), indent=2, ensure_ascii=False))
