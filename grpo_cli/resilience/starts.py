"""A run as the `model` of another: the checkpoint it means, found once and written into the recipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_cli.errors import DataError
from grpo_cli.recipe.sections.fields import Placed, written
from grpo_cli.resilience.checkpoint import Checkpoint, newest_valid
from grpo_cli.text import path_of

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe


def newest_checkpoint(run: Path) -> Checkpoint:
    """The newest whole checkpoint of a run's folder.

    Raises:
        DataError: it has none.
    """
    newest, broken = newest_valid(run / "checkpoints")
    if newest is None:
        why = f": {broken[0][0].path.name} is broken, {broken[0][1]}" if broken else ""
        raise DataError(f"the run `{run}` has no whole checkpoint{why}")
    return newest


def pinned(recipe: Recipe) -> Recipe:
    """The recipe with the checkpoint in place of a run's folder: the run may go on, and the start must stay the same.

    Raises:
        DataError: the run has no whole checkpoint.
    """
    folder = path_of(recipe.model.path)
    if not (folder / "run.json").is_file():
        return recipe
    newest = newest_checkpoint(folder).path
    near = os.path.join(written(recipe.model.path), newest.relative_to(folder))
    path = Placed(str(newest), near)
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"path": path})})
