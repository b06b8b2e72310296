"""`grpo chat`: parse, call, print."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated, Any, Literal

import typer

from grpo_cli.commands import options
from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
from grpo_cli.commands.opening import loading
from grpo_cli.text import strict_json, visible, visible_lines

HELP = "/reset forgets what was said, /quit or Ctrl-D ends"


def chat(
    model: options.ModelPlace,
    recipe: options.MeasuringRecipe = None,
    sets: options.Sets = None,
    trust: options.Trust = False,
    row: Annotated[
        str | None,
        typer.Option("--row", metavar="N", help="Sample a group of this row (number from 1, or id) and judge it."),
    ] = None,
    of: Annotated[Literal["eval", "train"], typer.Option("--of", help="Whose rows --row counts.")] = "train",
    samples: Annotated[int, typer.Option(min=1, help="Completions of the row.")] = 8,
    temperature: Annotated[float | None, typer.Option(min=0, help="Instead of the recipe's; 0 is greedy.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer; instead of the recipe's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling; without one a talk is never the same.")] = None,
    image: Annotated[list[str] | None, typer.Option(metavar="FILE", help="An image shown with the first turn.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Talk with a model, or sample one row and see the verdicts.

    A model without a chat template goes on from each line as it is. From a pipe every line is a turn.

    \b
    Examples:
      grpo chat last
      grpo chat last --row 3 --samples 4
      echo "12+30=" | grpo chat runs/1127-quickstart-k3f9
      grpo chat last --image photo.jpg
    """
    from grpo_cli.errors import UsageError

    if as_json and row is None:
        raise UsageError("a talk has no object to print", place="--json", hint="--json goes with --row N")
    if image and row is not None:
        raise UsageError("a row has images of its own", place="--image", hint="--image goes with a talk")
    changes: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
    given = {name: value for name, value in changes.items() if value is not None}
    if row is None:
        _talk(model, recipe, sets or [], given, image or [])
    else:
        from grpo_cli.display.choose import make_display
        from grpo_cli.jobs.open_job import open_first
        from grpo_cli.resilience.model_source import find_model_source, model_of

        over = [f"sample.{name}={value}" for name, value in given.items() if name != "seed"]
        source = find_model_source(model, recipe, [*(sets or []), *over])
        quiet_libraries()
        pin_one_gpu()
        with open_first(source.recipe, source.base, [of], model_of(source)) as first:
            with loading("chat"):
                from grpo_cli.jobs.chat import sample_row
                from grpo_cli.statistics.episodes import group_lines
            with closing(make_display("auto")) as shown:
                records = sample_row(source, of, row, samples, seed or 0, shown, first)
        if as_json:
            print(strict_json({"schema": 1, "samples": [record.as_json() for record in records]}))
        else:
            print("\n".join(group_lines(records)))


def _talk(model: str, recipe: str | None, sets: list[str], changes: dict[str, Any], files: list[str]) -> None:
    from grpo_cli.data.images import shown_images
    from grpo_cli.errors import DataError, SetupError, UsageError
    from grpo_cli.policy.loading.inspection import refuse_flaws
    from grpo_cli.recipe.sections.inputs import Model
    from grpo_cli.resilience.model_source import find_model_to_talk, model_of

    source = find_model_to_talk(model, recipe, sets)
    spec = Model(path=model, kind="vision" if files else "text") if source is None else model_of(source)
    if files and spec.kind == "text":
        raise UsageError("this model was trained on text alone", place="--image")
    refuse_flaws(spec, trains=False)
    images = shown_images(files)
    quiet_libraries()
    pin_one_gpu()
    with loading("chat"):
        from grpo_cli.jobs.chat import open_talk

    typed = sys.stdin.isatty()
    with open_talk(source, spec, changes, lambda text: print(text, file=sys.stderr), images) as talk:
        if typed:
            kind = "each line is a prompt of its own" if talk.plain else "chat"
            print(f"{model} · {kind} · {HELP}", file=sys.stderr)
        while True:
            try:
                text = input("> " if typed else "")
            except EOFError:
                break
            if text.strip() == "/quit":
                break
            if text.strip() == "/reset":
                talk.forget()
            elif text.strip():
                try:
                    print("\n".join(visible(line) for line in talk.answer(text).splitlines()), flush=True)
                except (DataError, SetupError) as err:
                    if not typed:
                        raise
                    print(visible_lines(err.render()), file=sys.stderr)
