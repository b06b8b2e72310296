"""`grpo pairs`: judged samples, read or newly drawn, become pairs of a right and a wrong answer.

The samples are those of a run, of files, or drawn by a recipe (`run_samples`, `read_samples`, `draw_samples`). `pairs_of` refuses
samples of held-out rows, and those that another recipe drew or judged, pairs the others (`preference.pairs`), and gives lines, a
summary and a hint where few were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grpo_cli.data.audit import refuse_held_out
from grpo_cli.data.files import BrokenFile, Record, read_file
from grpo_cli.data.rows import Row, load_rows
from grpo_cli.display.protocol import Display
from grpo_cli.errors import DataError, Mistake
from grpo_cli.preference.file import ANSWERS, answer_lines, count_unspelt, pair_lines, unspelt_text
from grpo_cli.preference.pairs import PairLimits, PairSummary, make_pairs, why_no_pairs
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from grpo_cli.text import path_of

# Samples are compared with the recipe that they claim to belong to, before anything is learned from them.


def check_belonging(samples: Sequence[SampleRecord], recipe: Recipe, base: Path | None, place: str) -> None:
    """Refuse samples of held-out rows, and samples that another recipe has drawn or judged.

    Raises:
        DataError: the reason in one sentence; also if the recipe's rows cannot be read.
    """
    held_out = load_rows(recipe.data, "eval", base) if recipe.data.eval is not None else []
    refuse_held_out([Row(s.row, s.prompt, None, {}) for s in samples], held_out, place)
    train = load_rows(recipe.data, "train", base)
    known = {row.id for row in train} | {row.prompt for row in train}
    strange = [s for s in samples if s.row not in known and s.prompt not in known]
    if strange:
        raise DataError(
            f"{len(strange):,} of {len(samples):,} samples are of rows that the recipe does not have,"
            f" first row `{strange[0].row}`: samples of another recipe",
            place=place,
        )
    judged = sorted({name for s in samples for name in s.verdicts})
    if judged and judged != sorted(recipe.verify):
        named, own = (", ".join(f"`{name}`" for name in names) for names in (judged, sorted(recipe.verify)))
        raise DataError(
            f"the samples were judged by {named}, the recipe judges by {own}: samples of another recipe",
            place=place,
            hint="`grpo verify FILE --recipe RECIPE --out SCORED` judges them anew",
        )


# Judged samples from files and runs; lines that are no samples are reported with their place.


def read_samples(files: Sequence[str]) -> list[SampleRecord]:
    """The samples of files as `grpo train` and `grpo verify --out` write them.

    Raises:
        DataError: no such file, and every line that is no judged sample.
    """
    found: list[SampleRecord] = []
    mistakes: list[Mistake] = []
    for name in files:
        path = path_of(name)
        if not path.is_file():
            raise DataError("no such file", place=name, hint="name files, a run, or a recipe")
        for item in read_file(path, name):
            read = _sample(item)
            if isinstance(read, Mistake):
                mistakes.append(read)
            else:
                found.append(read)
    if mistakes:
        raise DataError(mistakes, hint="`grpo verify FILE --out SCORED` writes such lines")
    return found


def _sample(item: Record | BrokenFile) -> SampleRecord | Mistake:
    if isinstance(item, BrokenFile):
        return Mistake(item.place, item.why)
    fields = item.fields
    for key in ("prompt", "completion"):
        if not isinstance(fields.get(key), str):
            return Mistake(item.place, f"`{key}` must be text")
    if fields.get("outcome") is None:
        return Mistake(item.place, "no `outcome`: the sample was not judged")
    try:
        return SampleRecord.from_json(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        return Mistake(item.place, f"no judged sample: {err}")


@dataclass(frozen=True)
class MadePairs:
    """The lines to write, with a summary; `unspelt` of them hold U+FFFD."""

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


def run_samples(run: RunFolder, since: int) -> list[SampleRecord]:
    """The training samples of a run from step `since` on.

    Raises:
        DataError: there are none.
    """
    steps = [step for step in run.steps() if step >= since]
    if not steps:
        which = f"no samples from step {since} on" if run.steps() else "no samples"
        raise DataError(f"the run has {which}", place=str(run.path))
    return [sample for step in steps for sample in run.samples(step)]


def draw_samples(
    recipe: Recipe, base: Path | None, display: Display, prompts: int | None, samples: int
) -> list[SampleRecord]:
    """Draw `samples` completions for each of this many training rows (default: all) with the recipe's model, after its
    warm-up if it has one.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` would.
    """
    from grpo_cli.jobs.open_job import open_start

    with open_start(recipe, base, display) as job:
        from grpo_cli.measure.probe import ProbeSize, sample_probe  # torch, behind what the rows refuse

        size = ProbeSize(prompts or len(job.train.rows), samples)
        progress = partial(display.progress, "sample")
        return sample_probe(recipe, job.train, job.judge, job.engine, job.policy, size, on_progress=progress).records


def pairs_of(
    samples: Sequence[SampleRecord],
    known: tuple[Recipe, Path | None] | None,
    place: str,
    limits: PairLimits,
    *,
    unpaired: bool,
) -> MadePairs:
    """Pairs of judged samples, or with `unpaired` every usable answer with its label.

    Args:
        known: the recipe to compare the samples with, and the folder that its data paths are relative to, if known.
        place: where the samples were found.

    Raises:
        DataError: samples of another recipe or of held-out rows, or no pair among them.
    """
    if known is not None:
        check_belonging(samples, *known, place)
    rows = make_pairs(samples, limits)
    summary = PairSummary.of(rows)
    lines = [line for row in rows for line in (answer_lines(row) if unpaired else pair_lines(row))]
    if not lines or (unpaired and not (summary.right and summary.wrong)):
        raise DataError(why_no_pairs(summary), place=place, hint=_hint(summary))
    texts = [[str(line[key]) for key in ANSWERS if key in line] for line in lines]
    return MadePairs(lines, summary, count_unspelt(texts), unpaired)


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
