"""Samples are held against the recipe that they are said to be of, before anything is learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpo_cli.data.overlap import refuse_held_out
from grpo_cli.data.rows import Row, load_rows
from grpo_cli.errors import DataError
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.records import SampleRecord


def check_belonging(samples: Sequence[SampleRecord], recipe: Recipe, base: Path | None, place: str) -> None:
    """Refuse samples of held-out rows, and samples that another recipe has drawn or judged.

    Raises:
        DataError: what is wrong, in one sentence; also where the recipe's rows cannot be read.
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
