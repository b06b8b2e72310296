"""The samples of a run, of files, or newly drawn by a recipe, made into pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_cli.display.protocol import Display
from grpo_cli.errors import DataError
from grpo_cli.jobs.pairs.belonging import check_belonging
from grpo_cli.jobs.pairs.reading import read_samples, run_samples
from grpo_cli.preference.file import ANSWERS, answer_lines, count_unspelt, pair_lines, unspelt_text
from grpo_cli.preference.pairs import PairLimits, PairSummary, RowPairs, make_pairs, why_no_pairs
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord


@dataclass(frozen=True)
class MadePairs:
    """The lines that are written, and what they are worth; `unspelt` of them hold U+FFFD."""

    lines: list[dict[str, Any]]
    summary: PairSummary
    unspelt: int
    unpaired: bool

    def as_json(self) -> dict[str, Any]:
        """The object of `--json`, without the file it was written to."""
        return {**self.summary.as_json(), "lines": len(self.lines), "unspelt": self.unspelt}

    def said(self) -> list[str]:
        """The same for people."""
        if not self.unspelt:
            return self.summary.lines()
        what = "answers" if self.unpaired else "pairs"
        return [*self.summary.lines(), unspelt_text(self.unspelt, len(self.lines), what)]


@dataclass(frozen=True)
class KnownRecipe:
    """A recipe, and the folder its data paths count from."""

    recipe: Recipe
    base: Path | None


@dataclass(frozen=True)
class PairSettings:
    """What the command line asked for.

    `unpaired` wants every usable answer with its label; `since` is the first step of a run that counts; `prompts` (None:
    all) and `samples` of each are what a recipe draws.
    """

    limits: PairLimits
    unpaired: bool = False
    since: int = 0
    prompts: int | None = None
    samples: int = 16


def pairs_of_run(run: RunFolder, of: KnownRecipe, settings: PairSettings) -> MadePairs:
    """Pairs of what a run has drawn, for nothing.

    Raises:
        DataError: no samples, samples of another recipe or of held-out rows, or no pair among them.
    """
    samples = run_samples(run, settings.since)
    check_belonging(samples, of.recipe, of.base, str(run.path))
    return _made(samples, settings, str(run.path))


def pairs_of_files(files: Sequence[str], of: KnownRecipe | None, settings: PairSettings) -> MadePairs:
    """Pairs of judged samples in files, held against a recipe where one is known.

    Raises:
        DataError: lines that are no judged samples, and as `pairs_of_run`.
    """
    samples = read_samples(files)
    place = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    if of is not None:
        check_belonging(samples, of.recipe, of.base, place)
    return _made(samples, settings, place)


def pairs_of_recipe(of: KnownRecipe, display: Display, settings: PairSettings) -> MadePairs:
    """Pairs of samples that the recipe's model, warmed up where it says so, draws now for its training rows.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would, and no pair among the samples.
    """
    from grpo_cli.jobs.workplace import open_start

    recipe = of.recipe
    with open_start(recipe, of.base, display) as place:
        from grpo_cli.measure.probe import ProbeSize, sample_probe  # torch, behind what the rows refuse

        found = sample_probe(
            recipe,
            place.train,
            place.judge,
            place.engine,
            place.policy,
            ProbeSize(settings.prompts or len(place.train.rows), settings.samples),
            on_progress=lambda done, total: display.progress("sample", done, total),
        )
    check_belonging(found.records, recipe, of.base, recipe.model.path)
    return _made(found.records, settings, recipe.model.path)


def _made(samples: Iterable[SampleRecord], settings: PairSettings, place: str) -> MadePairs:
    rows, unpaired = make_pairs(samples, settings.limits), settings.unpaired
    summary = PairSummary.of(rows)
    lines = list(_lines(rows, unpaired))
    if not lines or (unpaired and not (summary.right and summary.wrong)):
        raise DataError(why_no_pairs(summary), place=place, hint=_hint(summary))
    texts = [[str(line[key]) for key in ANSWERS if key in line] for line in lines]
    return MadePairs(lines, summary, count_unspelt(texts), unpaired)


def _lines(rows: Sequence[RowPairs], unpaired: bool) -> Iterable[dict[str, Any]]:
    return (line for row in rows for line in (answer_lines(row) if unpaired else pair_lines(row)))


def _hint(summary: PairSummary) -> str:
    if not summary.rows:
        return "`grpo train` and `grpo verify FILE --out SCORED` write judged samples"
    if not summary.right and summary.wrong:
        return "the model must be right sometimes: see `grpo probe RECIPE`"
    if not summary.wrong and summary.right:
        return "the rows are too easy for this model: see `grpo probe RECIPE`"
    if summary.right and summary.wrong:
        return "raise `--length-gap`, or draw more samples of a row"
    return "raise `sample.max_tokens`, or see `grpo probe RECIPE` for why nothing is judged"
