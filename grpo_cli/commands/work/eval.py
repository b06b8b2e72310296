"""`grpo eval`: parse, call, print."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grpo_cli.commands import options
from grpo_cli.errors import Exit, SetupError, TrainingError, why_unwritten
from grpo_cli.text import strict_json

if TYPE_CHECKING:
    from grpo_cli.measure.evaluation import Evaluation


def evaluate(
    checkpoint: options.ModelPlace,
    recipe: options.MeasuringRecipe = None,
    sets: options.EvalSets = None,
    trust: options.Trust = False,
    against: options.Against = None,
    out: options.EvalOut = None,
    by: options.EvalBy = None,
    seed: options.EvalSeed = 0,
    fail_under: options.PassFloor = None,
    display: options.Face = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Measure a model's pass@1, pass@k and maj@k on held-out rows.

    \b
    Examples:
      grpo eval runs/1127-quickstart-k3f9
      grpo eval runs/A --against runs/B
      grpo eval Qwen/Qwen2.5-0.5B-Instruct --recipe gsm8k-qwen2.5-0.5b
    """
    from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
    from grpo_cli.commands.opening import loading
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.open_job import open_first
    from grpo_cli.policy.loading.inspection import refuse_flaws
    from grpo_cli.resilience.model_source import find_model_source, model_of
    from grpo_cli.run.lines import refuse_unwritable

    source = find_model_source(checkpoint, recipe, sets or [])
    other = find_model_source(against, recipe, sets or []) if against else None
    if other is not None:
        refuse_flaws(model_of(other), trains=False)
    path = out or (source.folder / "eval.jsonl" if source.folder else None)
    refuse_unwritable(path)
    quiet_libraries()
    pin_one_gpu()
    with open_first(source.recipe, source.base, ["eval"], model_of(source)) as first:
        with loading("eval"):
            from grpo_cli.jobs.evaluate import as_object, by_kind, compare, comparison, measure_model, table
        with closing(make_display(display)) as shown:
            found = measure_model(source, shown, seed, by=by or [], first=first)
            reference = measure_model(other, shown, seed, "evaluate other") if other else None
    paired = compare(reference, found) if reference else None
    kinds = by_kind(found.sampled, by or [])
    if as_json:
        print(strict_json(as_object(checkpoint, found, against, reference, paired, kinds)))
    else:
        compared = comparison(against or "", reference, paired) if paired else []
        print("\n".join(table(found, path, kinds) + compared))
    # last of all: a disk that is full takes the samples, not what was measured
    for earlier in _write(path, found, keeps=out is None) if path is not None else []:
        print(f"the samples that were there are in {earlier}", file=sys.stderr)
    if found.sampled.pass_1.n == 0 and (failed := found.failures.commonest):
        raise TrainingError(f"no held-out sample got a verdict: {failed[0]}", hint="`grpo check` tries the verifiers")
    if fail_under is not None and found.sampled.pass_1.mean < fail_under:
        raise typer.Exit(int(Exit.BAR_MISSED))


def _write(path: Path, found: Evaluation, *, keeps: bool) -> list[Path]:
    """Write the samples; `keeps` what lay there under a name of its own, and returns these names."""
    from grpo_cli.run.lines import set_aside, write_records

    files = {path: found.sampled.records}
    if found.greedy is not None:
        files[path.with_suffix(".greedy.jsonl")] = found.greedy.records
    aside: list[Path] = []
    try:
        for file, records in files.items():
            earlier = set_aside(file) if keeps else None
            aside += [earlier] if earlier is not None else []
            write_records(file, records)
    except OSError as err:
        raise SetupError(
            f"cannot write the samples: {why_unwritten(err)}", place=str(path), hint="set `--out`"
        ) from err
    return aside
