"""`grpo probe`: parse, call, print."""

from __future__ import annotations

from pathlib import Path

import typer

from grpo_cli.commands import options
from grpo_cli.errors import Exit, SetupError


def probe(
    recipe: options.RecipePlace,
    sets: options.Sets = None,
    prompts: options.Prompts = None,
    samples: options.Samples = None,
    seed: options.ProbeSeed = None,
    out: options.ProbeOut = None,
    display: options.Face = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Sample the model before training: what would it learn from?

    Pass rates, outcomes, what is cut off, how many groups would be dead at each group size, the size that would pay,
    and examples of each failure. With a `gate` in the recipe: go or no-go. Exit 1: no-go.

    \b
    Examples:
      grpo probe quickstart
      grpo probe my.yaml -n 32 --samples 16
      grpo probe my.yaml --set 'gate.pass@1=[0.05, 0.9]' --json | jq .go
    """
    from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
    from grpo_cli.commands.opening import loading
    from grpo_cli.recipe.reading.load import find, load
    from grpo_cli.recipe.sections.recipe import Gate
    from grpo_cli.resilience.starts import pinned

    checked = pinned(load(recipe, sets or []))
    base = Path() if recipe == "-" else find(recipe).parent
    quiet_libraries()
    pin_one_gpu()
    with loading("probe"):
        from grpo_cli.jobs.probe.run import probe_recipe
        from grpo_cli.jobs.probe.text import lines_of
        from grpo_cli.measure.gate import bars, probe_object
        from grpo_cli.measure.probe import ProbeSize
    from grpo_cli.display.choose import make_display
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
