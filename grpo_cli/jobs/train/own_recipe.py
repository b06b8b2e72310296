"""The recipe of a run that goes on without one being named: the run's own."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.find import find_run
from grpo_cli.run.folder import base_of


def recipe_of_run(named: str, sets: list[str]) -> tuple[Recipe, Path, str, str]:
    """The recipe in a run's folder, the folder its data paths count from, its name, and the run's folder.

    `named` is a folder, a name under `runs/`, or `last`.
    """
    run = find_run(named)
    manifest = run.manifest()
    base = base_of(run) or Path()
    return (load(str(run.path / "recipe.yaml"), sets, base=base), base, manifest.get("recipe", run.name), str(run.path))
