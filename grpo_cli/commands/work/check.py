"""`grpo check`: parse, call, print."""

from __future__ import annotations

from typing import Annotated

import typer

from grpo_cli.commands import options
from grpo_cli.commands.checking import run_check


def check(
    recipe: options.RecipePlace,
    sets: options.Sets = None,
    trust: options.Trust = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Run every gold, load the tokenizer through transformers, and make TRL's settings."
        ),
    ] = False,
    most: Annotated[int, typer.Option(min=1, metavar="N", help="Look at about this many rows of each split.")] = 10_000,
    show: Annotated[
        bool, typer.Option("--show", help="Print the first prompt as the model gets it, token by token.")
    ] = False,
    gpu: options.Gpu = None,
    price: options.Price = None,
    as_json: options.AsJson = False,
) -> None:
    """Find what can be known of a run before a model is loaded.

    Asks launcher, engine, trackers and run folder what training asks them, and says what they refuse in the same words. Reads
    the rows, fills the templates, looks at the model's files and layers and at packages that are missing, puts every gold
    through its own verifier, looks for repeated and leaked rows, renders the prompts and counts their tokens, and does
    the arithmetic of batches, memory and time. Of a card that is named, or is here, it says whether the run fits, how long
    it takes and, with `--price`, what it costs. Exit 1: a warning stands. Exit 2, 3 or 4: the
    recipe, the data or this machine cannot do it.

    \b
    Examples:
      grpo check quickstart
      grpo check my.yaml --show
      grpo check my.yaml --gpu h100 --price 2.5
      grpo check my.yaml --set data.train=other.jsonl --json
    """
    from grpo_cli.jobs.check.recipe import RecipeCheck
    from grpo_cli.recipe.reading.load import load_with_folder
    from grpo_cli.resilience.checkpoint import pinned
    from grpo_cli.sizing.fit import ask_of

    ask = ask_of(gpu, price)
    loaded, base = load_with_folder(recipe, sets or [])
    checked = RecipeCheck(pinned(loaded), base, most, full, ask=ask, is_stdin=recipe == "-")
    raise typer.Exit(int(run_check(checked, recipe, as_json=as_json, shows=show)))
