"""`grpo pairs`: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.commands import options
from grpo_cli.errors import DataError, SetupError, UsageError, why_unwritten
from grpo_cli.text import strict_json

if TYPE_CHECKING:
    from grpo_cli.jobs.pairs import KnownRecipe, MadePairs, PairSettings
    from grpo_cli.run.folder import RunFolder

SAMPLE_FILES = (".jsonl", ".ndjson", ".gz", ".zst", ".parquet")


def pairs(
    sources: options.PairSources,
    recipe: options.PairRecipe = None,
    sets: options.Sets = None,
    trust: options.Trust = False,
    a_row: options.PairsARow = 4,
    length_gap: options.LengthGap = 0.2,
    since: options.Since = 0,
    unpaired: options.Unpaired = False,
    prompts: options.PairPrompts = None,
    samples: options.PairSamples = 16,
    out: options.PairsOut = None,
    display: options.Face = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Make pairs of a right and a wrong answer from judged samples.

    Of a finished run for nothing, of files that `grpo verify` has scored, or newly drawn by a recipe. Only whole, judged,
    distinct answers of like length, a few of each row, never of a held-out one.

    \b
    Examples:
      grpo pairs last
      grpo pairs runs/NAME --out pairs.jsonl --json
      grpo pairs scored.jsonl --recipe my.yaml --unpaired
      grpo pairs quickstart -n 200 --samples 64
    """
    from grpo_cli.jobs.pairs import PairSettings
    from grpo_cli.preference.pairs import PairLimits
    from grpo_cli.run.lines import refuse_unwritable, replace
    from grpo_cli.run.records import dump_line

    settings = PairSettings(PairLimits(a_row=a_row, gap=length_gap), unpaired, since, prompts, samples)
    run = None if all(name.endswith(SAMPLE_FILES) for name in sources) else _run(sources)
    path = out or (run.path / "pairs.jsonl" if run is not None else Path("pairs.jsonl"))
    refuse_unwritable(path)
    made = _made(sources, run, recipe, sets or [], settings, display)
    try:
        replace(path, (dump_line(line) for line in made.lines))
    except OSError as err:
        raise SetupError(f"cannot write the pairs: {why_unwritten(err)}", place=str(path), hint="set `--out`") from err
    if as_json:
        print(strict_json({"schema": 1, **made.as_json(), "file": str(path)}))
    else:
        print("\n".join([*made.said(), f"{len(made.lines):,} lines in {path}"]))


def _made(
    sources: list[str], run: RunFolder | None, recipe: str | None, sets: list[str], settings: PairSettings, display: str
) -> MadePairs:
    from grpo_cli.jobs.pairs import pairs_of_files, pairs_of_recipe, pairs_of_run

    if run is not None:
        return pairs_of_run(run, _recipe_of_run(run, recipe, sets), settings)
    if sources[0].endswith(SAMPLE_FILES):
        return pairs_of_files(sources, _recipe_of_files(sources, recipe, sets), settings)
    if recipe is not None:
        raise UsageError(f"`{sources[0]}` is a recipe itself: `--recipe` goes with samples that are there")
    from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
    from grpo_cli.display.choose import make_display

    known = _named(sources[0], sets)
    quiet_libraries()
    pin_one_gpu()
    shown = make_display(display)
    try:
        return pairs_of_recipe(known, shown, settings)
    finally:
        shown.close()


def _run(sources: list[str]) -> RunFolder | None:
    """The run that is named; None where it can only be a recipe."""
    from grpo_cli.run.find import find_run

    if len(sources) > 1:
        raise UsageError("several files may be named together, or one run, or one recipe")
    (named,) = sources
    if named.endswith((".yaml", ".yml")) or named == "-":
        return None
    try:
        return find_run(named)
    except DataError:
        from grpo_cli.recipe.reading.source import shipped_recipes

        if named in shipped_recipes():
            return None
        raise


def _recipe_of_files(files: list[str], named: str | None, sets: list[str]) -> KnownRecipe | None:
    from grpo_cli.reward.plan import recipe_beside

    beside = None if named else recipe_beside(files)
    if beside is not None:
        from grpo_cli.run.folder import RunFolder

        return _recipe_of_run(RunFolder.open(Path(beside).parent), None, sets)
    return _named(named, sets) if named else None


def _recipe_of_run(run: RunFolder, named: str | None, sets: list[str]) -> KnownRecipe:
    from grpo_cli.jobs.pairs import KnownRecipe
    from grpo_cli.recipe.reading.load import load
    from grpo_cli.run.folder import base_of

    if named is not None:
        return _named(named, sets)
    base = base_of(run)
    return KnownRecipe(load(str(run.path / "recipe.yaml"), sets, base=base, of_run=True), base)


def _named(name: str, sets: list[str]) -> KnownRecipe:
    from grpo_cli.jobs.pairs import KnownRecipe
    from grpo_cli.recipe.reading.load import load_with_folder
    from grpo_cli.resilience.checkpoint import pinned

    recipe, base = load_with_folder(name, sets)
    return KnownRecipe(pinned(recipe), base)
