"""`grpo check`: parse, call, print."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from grpo_cli.data.rows import Row
    from grpo_cli.jobs.check.findings import CheckFinding

SCHEMA = 1
COLOURS = {"ok": "32", "note": "36", "unknown": "33", "warn": "33", "fail": "31"}


def check(
    recipe: Annotated[
        str, typer.Argument(help="A recipe file, the name of a shipped recipe, or - for stdin.")
    ],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one key; may be repeated."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Run every gold, and load the tokenizer through transformers.")
    ] = False,
    most: Annotated[
        int, typer.Option(min=1, metavar="N", help="Look at about this many rows of each split.")
    ] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object on stdout.")] = False,
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
    from grpo_cli.recipe.reading.load import find, load

    began = time.perf_counter()
    checked = RecipeCheck(
        load(recipe, sets or []), Path() if recipe == "-" else find(recipe).parent, most, full
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
        print(json.dumps({**out, "checks": [finding.as_json() for finding in findings]}))
    else:
        print("\n".join(["", *example(checked.sample_row), summary(recipe, findings, seconds)]))
    raise typer.Exit(int(code))


def text(finding: CheckFinding, colour: bool) -> list[str]:
    """What a person reads of one check; the level stands as a word, colour only repeats it."""
    word = f"{finding.level.value:<8}"
    if colour:
        word = f"\x1b[{COLOURS[finding.level.value]}m{word}\x1b[0m"
    lines = [f"{word}{finding.check:<12} {visible(finding.message)}"]
    lines += [f"{'':<21}{visible(line)}" for line in finding.lines]
    return lines + ([f"{'':<21}hint: {finding.hint}"] if finding.hint else [])


def example(row: Row | None) -> list[str]:
    """The first row as the model will get it."""
    if row is None:
        return []
    turns = (
        [("prompt", row.prompt)]
        if row.messages is None
        else [(m["role"], m["content"]) for m in row.messages]
    )
    if (gold := row.fields.get("answer")) is not None:
        turns.append(("answer", gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)))
    return [f"the first row, {row.place}:", *(f"  {name:<10} {short(value)}" for name, value in turns), ""]


def summary(recipe: str, findings: list[CheckFinding], seconds: float) -> str:
    """The last lines: counts, and the next command."""
    count = {level: sum(f.level.value == level for f in findings) for level in COLOURS}
    said = [f"{count[level]} {level}" for level in ("fail", "warn", "unknown") if count[level]]
    head = f"{len(findings)} checks in {seconds:.1f} s" + (
        f": {', '.join(said)}" if said else ", nothing found"
    )
    return head if count["fail"] or recipe == "-" else f"{head}\nnext: grpo train {recipe}"


def short(value: str, most: int = 400) -> str:
    """A value on one line, cut at the end, control characters made visible."""
    line = visible(value.replace("\n", "⏎"))
    return line if len(line) <= most else line[: most - 1] + "…"


def visible(value: str) -> str:
    """Text that cannot steer a terminal: control and direction characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
