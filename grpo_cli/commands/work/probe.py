"""`grpo probe`: parse, call, print."""

from __future__ import annotations

from contextlib import closing

import typer

from grpo_cli.commands import options
from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
from grpo_cli.commands.opening import loading
from grpo_cli.errors import Exit, SetupError, why_unwritten


def probe(
    recipe: options.RecipePlace,
    sets: options.Sets = None,
    trust: options.Trust = False,
    prompts: options.Prompts = None,
    samples: options.Samples = None,
    seed: options.ProbeSeed = None,
    out: options.ProbeOut = None,
    gpu: options.Gpu = None,
    price: options.Price = None,
    display: options.Face = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Sample the model before training: what would it learn from?

    Pass rates, outcomes, what is cut off, how many groups would be dead at each group size, the size that would pay,
    and examples of each failure. With `--gpu` also whether the run fits that card, how long it takes and what it costs, by the
    lengths that were drawn; a step is measured where such a card is here. With a `gate` in the recipe: go or no-go. Exit 1: no-go.

    \b
    Examples:
      grpo probe quickstart
      grpo probe my.yaml -n 32 --samples 16
      grpo probe my.yaml --gpu h100 --price 2.5
      grpo probe my.yaml --set 'gate.pass@1=[0.05, 0.9]' --json | jq .go
    """
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.open_job import open_first
    from grpo_cli.recipe.reading.load import load_with_folder
    from grpo_cli.recipe.sections.recipe import Gate
    from grpo_cli.resilience.checkpoint import pinned
    from grpo_cli.run.lines import refuse_unwritable
    from grpo_cli.run.records import dump_line
    from grpo_cli.sizing.fit import ask_of

    ask = ask_of(gpu, price) if gpu is not None or price is not None else None
    loaded, base = load_with_folder(recipe, sets or [])
    checked = pinned(loaded)
    refuse_unwritable(out)
    quiet_libraries()
    pin_one_gpu()
    with open_first(checked, base, ["train"]) as first:
        with loading("probe"):
            from grpo_cli.jobs.probe import lines_of, run_probe
            from grpo_cli.measure.gate import bars, probe_object
            from grpo_cli.measure.probe import ProbeSize
        size = ProbeSize.of(checked.gate or Gate())
        size = ProbeSize(prompts or size.prompts, samples or size.samples)
        with closing(make_display(display)) as shown:
            probed = run_probe(checked, base, shown, size, seed, ask, first)
    found = probed.run
    if out is not None:
        from grpo_cli.run.lines import write_records

        try:
            write_records(out, found.records)
        except OSError as err:
            raise SetupError(f"cannot write the samples: {why_unwritten(err)}", place=str(out)) from err
    if as_json:
        print(dump_line(probe_object(found, checked.gate) | probed.asked_json()), end="")
    else:
        print("\n".join(lines_of(probed, checked.gate, checked.model.path, checked.sample.temperature)))
    missed = checked.gate is not None and not all(bar.is_met for bar in bars(found.probe, checked.gate))
    raise typer.Exit(int(Exit.BAR_MISSED if missed else Exit.OK))
