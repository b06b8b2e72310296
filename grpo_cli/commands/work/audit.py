"""`grpo audit …`: parse, call, print."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from grpo_cli.commands import options
from grpo_cli.text import strict_json

audit = typer.Typer(no_args_is_help=True, help="Attack what a run rests on: the reward, the rows.")


@audit.callback()
def _root() -> None:
    """Attack what a run rests on before the run does."""


@audit.command("verifier")
def verifier(
    kinds: Annotated[
        list[str] | None, typer.Argument(metavar="[KIND]…", help="Kinds to audit on built-in rows.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", callback=options.recipe_in, help="Audit this recipe's verifiers on its own rows."),
    ] = None,
    sets: options.Sets = None,
    trust: options.Trust = False,
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
        float | None, typer.Option("--fail-over", metavar="RATE", help="Exit 1 if a rate of failures is above this.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Try attacks and harmless rewrites on verifiers.

    It counts false positives and false negatives, with intervals.

    \b
    Examples:
      grpo audit verifier math
      grpo audit verifier --recipe my.yaml --rows 200 --fail-over 0.01
    """
    from grpo_cli.errors import Exit, UsageError
    from grpo_cli.jobs.audit.verifier import SCHEMA, audit_kinds, audit_recipe

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


@audit.command("data")
def data(
    recipe: options.RecipePlace,
    sets: options.Sets = None,
    trust: options.Trust = False,
    rows: Annotated[
        int, typer.Option("--rows", min=0, help="Rows that the model is asked about; 0: the data alone.")
    ] = 256,
    samples: Annotated[int, typer.Option(min=2, max=64, help="Samples of each.")] = 8,
    seed: options.ProbeSeed = None,
    display: options.Face = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Rank the training rows by how odd they are.

    Odd is what is repeated, contradicting, or against what the model and the other rows say. No row is called poisoned: each is shown with what was seen. Exit 1: a row is past a bar.

    \b
    Examples:
      grpo audit data quickstart
      grpo audit data my.yaml --rows 0
      grpo audit data my.yaml --json | jq .ranked[0]
    """

    from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
    from grpo_cli.commands.opening import loading
    from grpo_cli.display.choose import make_display
    from grpo_cli.errors import Exit
    from grpo_cli.recipe.reading.load import load_with_folder

    checked, base = load_with_folder(recipe, sets or [])
    quiet_libraries()
    pin_one_gpu()
    with loading("audit"):
        from grpo_cli.jobs.audit.data import audit_data
    shown = make_display(display)
    try:
        found = audit_data(checked, base, shown, asked=rows, samples=samples, seed=seed)
    finally:
        shown.close()
    print(strict_json(found.as_json()) if as_json else found.text())
    raise typer.Exit(int(Exit.BAR_MISSED if found.flags() else Exit.OK))
