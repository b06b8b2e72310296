"""What `select: ads` cannot go with, and how many rows it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from grpo_cli.errors import DataError
from grpo_cli.recipe.checking.mistakes import RecipeFinding
from grpo_cli.recipe.paths import Path
from grpo_cli.recipe.sections.ads import AdsSpec

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe

LEAST_ROWS = 2000
"""With fewer rows clusters are so small that a window has no way to go, or so few that they are no clusters."""
MOST_CLUSTERS, ROWS_EACH = 64, 64
CROSSINGS = 4
"""A reset comes after as many crossings of a cluster at least."""


def cluster_count(n_rows: int) -> int:
    """How many clusters so many rows are divided into where the recipe does not say."""
    return max(1, min(MOST_CLUSTERS, n_rows // ROWS_EACH))


def check_ads(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """Keys of ADS without it, and what would take its windows away from the boundary."""
    train = recipe.train
    if train.select != "ads":
        for key in ("ads", "ads_ok"):
            if getattr(train, key):
                yield RecipeFinding(
                    ("train", key),
                    f"`train.{key}` has no effect with `select: {train.select}`",
                    "say `select: ads`, or leave it out",
                )
        return
    if train.method == "sft":
        yield RecipeFinding(
            ("train", "select"),
            "`method: sft` samples no rows, and `select: ads` goes by their samples",
            "leave `select` out",
        )
    if train.dead_groups == "resample":
        at: Path = next(
            (p for p in (("train", "dead_groups"), ("train", "algorithm")) if said(p)), ("train", "dead_groups")
        )
        yield RecipeFinding(
            at,
            "`dead_groups: resample` draws other rows where a window should move on from its own",
            "say `dead_groups: drop`",
        )
    active = (train.ads or AdsSpec()).active
    if recipe.sample.prompts < active:
        yield RecipeFinding(
            ("sample", "prompts"),
            f"{recipe.sample.prompts} prompts a step leave no row for each of {active} clusters",
            f"raise it to {active} or more, or lower `train.ads.active`",
        )


def check_rows(recipe: Recipe, n_rows: int) -> None:
    """Refuse what cannot work with so many rows, but for `train.ads_ok`.

    Raises:
        DataError: too few rows for windows to move, or resets that come before one has.
    """
    train = recipe.train
    if train.select != "ads" or train.ads_ok:
        return
    if n_rows < LEAST_ROWS:
        raise DataError(
            f"`select: ads` needs {LEAST_ROWS:,} training rows or more, there are {n_rows:,}: its windows would have no way"
            " to go",
            hint="say `select: auto`, or `train.ads_ok: true` to try it all the same",
        )
    spec = train.ads or AdsSpec()
    clusters = spec.clusters or cluster_count(n_rows)
    active = min(spec.active, clusters)
    way = n_rows / clusters - recipe.sample.prompts / active
    least = round(CROSSINGS * way * clusters / active)
    if spec.reset is not None and spec.reset < least:
        raise DataError(
            f"`train.ads.reset: {spec.reset}` takes the windows back before they have crossed their clusters:"
            f" {CROSSINGS} crossings of {clusters} clusters of {n_rows:,} rows take {least:,} steps",
            hint="leave `reset` out, or say `train.ads_ok: true` to try it all the same",
        )
