"""`grpo check`: parse, call, print."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_cli.commands import options
from grpo_cli.text import strict_json

if TYPE_CHECKING:
    from grpo_cli.jobs.check.findings import CheckFinding

SCHEMA = 1


def check(
    recipe: options.RecipePlace,
    sets: options.Sets = None,
    full: Annotated[
        bool, typer.Option("--full", help="Run every gold, and load the tokenizer through transformers.")
    ] = False,
    most: Annotated[
        int, typer.Option(min=1, metavar="N", help="Look at about this many rows of each split.")
    ] = 10_000,
    as_json: options.AsJson = False,
) -> None:
    """Find out all that can be known about a run before a model is loaded.

    Reads the rows, fills the templates, puts every gold through its own verifier, looks for repeated and leaked rows,
    counts tokens, and does the arithmetic of batches, memory and time. Exit 1: a warning stands. Exit 2, 3 or 4: the
    recipe, the data or this machine cannot do it.

    \b
    Examples:
      grpo check quickstart
      grpo check my.yaml --set data.train=other.jsonl --json
    """
    from grpo_cli.jobs.check.findings import exit_code
    from grpo_cli.jobs.check.recipe import RecipeCheck
    from grpo_cli.jobs.check.text import example, summary, text
    from grpo_cli.recipe.reading.load import find, load
    from grpo_cli.resilience.starts import pinned

    began = time.perf_counter()
    checked = RecipeCheck(
        pinned(load(recipe, sets or [])), Path() if recipe == "-" else find(recipe).parent, most, full
    )
    findings: list[CheckFinding] = []
    for finding in checked.findings():
        findings.append(finding)
        if not as_json:
            print("\n".join(text(finding, sys.stdout.isatty())), flush=True)
    code = exit_code(findings)
    seconds = time.perf_counter() - began
    if as_json:
        out = {
            "schema": SCHEMA,
            "recipe": recipe,
            "ok": code == 0,
            "exit": int(code),
            "seconds": round(seconds, 3),
        }
        print(strict_json({**out, "checks": [finding.as_json() for finding in findings]}))
    else:
        print("\n".join(["", *example(checked.sample_row), summary(recipe, findings, seconds)]))
    raise typer.Exit(int(code))
