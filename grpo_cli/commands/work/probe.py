"""`grpo probe`: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpo_cli.errors import Exit, SetupError


def probe(
    recipe: Annotated[
        str, typer.Argument(help="A recipe file, the name of a shipped recipe, or - for stdin.")
    ],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one key; may be repeated."),
    ] = None,
    prompts: Annotated[
        int | None,
        typer.Option("--prompts", "-n", min=1, help="Training prompts; default `gate.n`, else 64."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=2, max=256, help="Samples of each; default `gate.samples`, else 8.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of choosing and sampling; default `train.seed`.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the samples here, as `grpo verify` reads them.")
    ] = None,
    display: Annotated[str, typer.Option(help="auto, live, plain, json or none.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one object on stdout.")] = False,
) -> None:
    """Sample the model as training would start it, and say what it would have to learn from.

    Pass rates, outcomes, what is cut off, how many groups would be dead at each group size, the size that would pay,
    and examples of each failure. With a `gate` in the recipe: go or no-go. Exit 1: no-go.

    \b
    Examples:
      grpo probe quickstart
      grpo probe my.yaml -n 32 --samples 16
      grpo probe my.yaml --set 'gate.pass@1=[0.05, 0.9]' --json | jq .go
    """
    from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
    from grpo_cli.recipe.reading.load import find, load
    from grpo_cli.recipe.sections.recipe import Gate

    checked = load(recipe, sets or [])
    base = Path() if recipe == "-" else find(recipe).parent
    quiet_libraries()
    pin_one_gpu()
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.probe.run import probe_recipe
    from grpo_cli.jobs.probe.text import lines_of
    from grpo_cli.measure.gate import bars, probe_object
    from grpo_cli.measure.probe import ProbeSize
    from grpo_cli.run.lines import write_records
    from grpo_cli.run.records import dump_line

    usual = ProbeSize.of(checked.gate or Gate())
    size = ProbeSize(prompts or usual.prompts, samples or usual.samples)
    shown = make_display(display)
    try:
        found = probe_recipe(checked, base, shown, size, seed)
    finally:
        shown.close()
    if out is not None:
        try:
            write_records(out, found.records)
        except OSError as err:
            raise SetupError(f"cannot write the samples: {err.strerror}", place=str(out)) from err
    if as_json:
        print(dump_line(probe_object(found, checked.gate)), end="")
    else:
        print("\n".join(lines_of(found, checked.gate, checked.model.path, checked.sample.temperature)))
    missed = checked.gate is not None and not all(bar.is_met for bar in bars(found.probe, checked.gate))
    raise typer.Exit(int(Exit.BAR_MISSED if missed else Exit.OK))
