"""`grpo audit …`: parse, call, print."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from grpo_cli.commands import options
from grpo_cli.text import strict_json

audit = typer.Typer(no_args_is_help=True, help="Attack the reward.")


@audit.callback()
def _root() -> None:
    """Attack what a run rests on before the run does."""


@audit.command("verifier")
def verifier(
    kinds: Annotated[
        list[str] | None, typer.Argument(metavar="[KIND]…", help="Kinds to audit on built-in rows.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="Audit this recipe's verifiers on its own rows.")
    ] = None,
    sets: options.RecipeSets = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of the recipe to audit on.")] = 50,
    gold: Annotated[
        str | None,
        typer.Option(
            "--gold",
            metavar="TEMPLATE",
            help="A right completion, such as 'It is {answer}', where a verifier has none.",
        ),
    ] = None,
    fail_over: Annotated[
        float | None,
        typer.Option("--fail-over", metavar="RATE", help="Exit 1 if a rate of failures is above this."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Try attacks and harmless rewrites on verifiers: false positives and false negatives, with intervals.

    \b
    Examples:
      grpo audit verifier math
      grpo audit verifier --recipe my.yaml --rows 200 --fail-over 0.01
    """
    from grpo_cli.errors import Exit, UsageError
    from grpo_cli.jobs.audit.run import audit_kinds, audit_recipe
    from grpo_cli.jobs.audit.verifier import SCHEMA

    if bool(kinds) == bool(recipe):
        raise UsageError("name kinds or a recipe", hint="`grpo audit verifier math` or `--recipe FILE`")
    found = audit_recipe(recipe, sets or [], rows, gold) if recipe else audit_kinds(kinds or [])
    if as_json:
        body: dict[str, Any] = {"schema": SCHEMA, "verifiers": {one.name: one.as_json() for one in found}}
        print(strict_json(body))
    else:
        print("\n\n".join(one.text() for one in found))
    is_over = fail_over is not None and any(one.worst_rate > fail_over for one in found)
    raise typer.Exit(int(Exit.BAR_MISSED if is_over else Exit.OK))
