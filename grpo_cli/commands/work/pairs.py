"""`grpo pairs`: parse, call, print."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.commands import options
from grpo_cli.errors import DataError, SetupError, UsageError, why_unwritten
from grpo_cli.text import strict_json

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe
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
    from grpo_cli.jobs.pairs import draw_samples, pairs_of, read_samples, run_samples
    from grpo_cli.preference.pairs import PairLimits
    from grpo_cli.reward.plan import recipe_beside
    from grpo_cli.run.folder import RunFolder
    from grpo_cli.run.lines import refuse_unwritable, replace
    from grpo_cli.run.records import dump_line

    are_files = all(name.endswith(SAMPLE_FILES) for name in sources)
    run = None if are_files else _run(sources)
    path = out or (run.path / "pairs.jsonl" if run is not None else Path("pairs.jsonl"))
    refuse_unwritable(path)
    beside = recipe_beside(sources) if are_files and not recipe else None
    own = RunFolder.open(Path(beside).parent) if beside is not None else run
    if not are_files and run is None and recipe is not None:
        raise UsageError(f"`{sources[0]}` is a recipe itself: `--recipe` goes with samples that are there")
    known = _known(own, recipe if are_files or run is not None else sources[0], sets or [])
    if known is not None and known[0].data.images:
        raise UsageError("pairs carry no images: a model would learn from them as from text", place="data.images")
    if run is not None:
        found, place = run_samples(run, since), str(run.path)
    elif are_files:
        found = read_samples(sources)
        place = sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"
    else:
        from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
        from grpo_cli.display.choose import make_display

        assert known is not None
        quiet_libraries()
        pin_one_gpu()
        with closing(make_display(display)) as shown:
            found, place = draw_samples(*known, shown, prompts, samples), known[0].model.path
    made = pairs_of(found, known, place, PairLimits(a_row=a_row, gap=length_gap), unpaired=unpaired)
    try:
        replace(path, (dump_line(line) for line in made.lines))
    except OSError as err:
        raise SetupError(f"cannot write the pairs: {why_unwritten(err)}", place=str(path), hint="set `--out`") from err
    if as_json:
        print(strict_json({"schema": 1, **made.as_json(), "file": str(path)}))
    else:
        print("\n".join([*made.said(), f"{len(made.lines):,} lines in {path}"]))


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


def _known(run: RunFolder | None, named: str | None, sets: list[str]) -> tuple[Recipe, Path | None] | None:
    """The recipe that is named, else the run's own, and the folder its paths count from; None where there is neither."""
    from grpo_cli.recipe.reading.load import load_with_folder
    from grpo_cli.resilience.checkpoint import pinned
    from grpo_cli.run.folder import base_of

    if named:
        recipe, base = load_with_folder(named, sets)
        return pinned(recipe), base
    if run is None:
        return None
    base_here = base_of(run)
    return load_with_folder(str(run.path / "recipe.yaml"), sets, base=base_here, of_run=True)[0], base_here
