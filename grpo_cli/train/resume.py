"""Which run a `--resume` means, and whether its recipe is still the same."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.errors import DataError, RecipeError
from grpo_cli.recipe import Recipe
from grpo_cli.run import RunFolder

NEWEST = "last"
"""The value of a bare `--resume`."""

HARMLESS = ("run.", "eval.", "stop.", "launch.", "gate")
"""Keys that do not change what a step computes; `--resume-anyway` lets them differ."""

FIXED = {"launch.strategy"}
"""Among these the ones that shape the optimizer state in a checkpoint: they cannot differ."""

NO_CHANGE = ("launch.node_rank", "launch.rendezvous", "monitor.on_alarm")
"""Each machine of a run has its own number, each allocation its own host, and an alarm was looked at: these may always differ."""


def find_run(recipe: Recipe, named: str, *, anyway: bool = False) -> RunFolder:
    """The run at a path, or the newest unfinished one of this very recipe under `run.dir`.

    Raises:
        DataError: no such run.
        RecipeError: the run was made from another recipe; the differing keys are named.
    """
    if named != NEWEST:
        run = RunFolder.open(named)
        changed = differing_keys(as_written_now(run.recipe_text), recipe.resolved())
        harmful = [key for key in changed if not _is_harmless(key)]
        if harmful or (changed and not anyway):
            hint = (
                "`--resume-anyway` allows these"
                if not harmful
                else f"resume with {named}/recipe.yaml, or start a new run"
            )
            raise RecipeError(
                f"the recipe differs from the run's in {', '.join(f'`{key}`' for key in (harmful or changed)[:8])}",
                place=named,
                hint=hint,
            )
        return run
    root = Path(recipe.run.dir)
    runs = sorted(root.glob("*/run.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for file in runs:
        run = RunFolder.open(file.parent)
        changed = differing_keys(as_written_now(run.recipe_text), recipe.resolved())
        if all(anyway and _is_harmless(key) for key in changed):
            return run
    raise DataError(f"no run of this recipe under `{root}`", hint="leave `--resume` out to start one")


def _is_harmless(key: str) -> bool:
    return key.startswith(HARMLESS) and key not in FIXED


def as_written_now(text: str) -> str:
    """A resolved recipe with the keys that came after it was written, at their defaults; unchanged if it no longer loads."""
    from pydantic import ValidationError
    from ruamel.yaml import YAML

    try:
        return Recipe.model_validate(YAML(typ="safe").load(text)).resolved()
    except ValidationError:
        return text


def differing_keys(old: str, new: str) -> list[str]:
    """Dotted keys whose values differ between two resolved recipes."""
    from ruamel.yaml import YAML

    before, after = (flatten(YAML(typ="safe").load(text)) for text in (old, new))
    keys = {key for key in before.keys() | after.keys() if not key.startswith(NO_CHANGE)}
    return sorted(key for key in keys if before.get(key) != after.get(key))


def flatten(value: object, path: str = "") -> dict[str, object]:
    """Leaves of nested mappings by dotted key; lists are leaves."""
    if not isinstance(value, dict):
        return {path: value}
    out: dict[str, object] = {}
    for key, inner in value.items():
        out |= flatten(inner, f"{path}.{key}" if path else str(key))
    return out
