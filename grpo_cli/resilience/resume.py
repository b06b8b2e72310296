"""Finds the run that a `--resume` means, and checks that its recipe is unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpo_cli.errors import DataError, RecipeError
from grpo_cli.recipe.reading.dump import filled_up, plain
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.find import find_run as find_named
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.typed import recipe_of_text
from grpo_cli.text import without_home

NEWEST = "last"
"""The value of a bare `--resume`."""

HARMLESS = ("run.", "eval.", "stop.", "launch.", "gate", "train.recompute", "train.offload")
"""Keys that do not change what a step computes; with `--resume-anyway` they may differ."""

FIXED = {"launch.strategy"}
"""Among these the ones that shape the optimizer state in a checkpoint: they cannot differ."""

PACE = ("train.steps", "train.epochs", "train.lr", "train.lr_warmup_steps", "train.schedule")
"""Keys for the length and rate of a run: a run that is named explicitly may continue with other values, which the
screen shows."""

MOST_NAMED = 8
NO_CHANGE = ("launch.node_rank", "launch.rendezvous", "monitor.on_alarm")
"""Each machine of a run has its own number, each allocation its own host, and an alarm was looked at: these may always
differ."""


def find_run(recipe: Recipe, named: str, *, anyway: bool = False) -> RunFolder:
    """The run at a path or of this name under `run.dir`, whose pace may be another; for `NEWEST` the newest one of this very
    recipe there.

    Raises:
        DataError: no such run.
        RecipeError: the run, or every run there, was made from another recipe; the differing keys are named.
    """
    if named != NEWEST:
        run = find_named(named, recipe.run.dir)
        changed = [key for key in changed_keys(run, recipe) if key not in PACE]
        if not changed or (anyway and all(map(_is_harmless, changed))):
            return run
        raise _refusal(run, changed, "the recipe differs from the run's in", str(run.path))
    root = Path(recipe.run.dir)
    near: list[tuple[int, RunFolder, list[str]]] = []
    # newest first: a bare `--resume` means the newest run with the same recipe
    for file in sorted(root.glob("*/run.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        run = RunFolder.open(file.parent)
        with suppress(DataError):  # skip a run that cannot be read
            changed = changed_keys(run, recipe)
            # a recipe that gives no name is that of a run which got one on the command line
            unnamed = [key for key in changed if key != "run.name" or recipe.run.name is not None]
            if all(anyway and _is_harmless(key) for key in unnamed):
                return run
            near.append((len(changed), run, changed))
    if not near:
        raise DataError(f"no run under `{root}`", hint="leave `--resume` out to start one")
    _, run, changed = min(near, key=lambda entry: entry[0])
    raise _refusal(run, changed, f"no run under `{root}` is of this recipe; the nearest, `{run.path}`, differs in")


def changed_keys(run: RunFolder, recipe: Recipe) -> list[str]:
    """Dotted keys in which the recipe differs from the run's own.

    Raises:
        DataError: the run's recipe cannot be read.
    """
    # a folder that holds a function has another path after a move; its contents have a digest
    return [key for key in _changes(run, recipe) if not (key.startswith("verify.") and key.endswith(".path"))]


def changed_pace(run: RunFolder, recipe: Recipe) -> dict[str, tuple[object, object]]:
    """What the run had before and what the recipe has now, by dotted key, of the pace: steps, rate and schedule.

    Raises:
        DataError: the run's recipe cannot be read.
    """
    changes = _changes(run, recipe)
    return {key: changes[key] for key in PACE if key in changes}


def _changes(run: RunFolder, recipe: Recipe) -> dict[str, tuple[object, object]]:
    try:
        before = recipe_of_text(run.recipe_text)
        # keys that came after the run was made stand in it at their defaults; what a run keeps begins with `~` below the home
        both = (json.dumps(one, ensure_ascii=False, default=str) for one in (filled_up(before), plain(recipe)))
        return differences(*(json.loads(without_home(text)) for text in both))
    except (OSError, ValueError) as err:
        message = str(err).partition("\n")[0]
        raise DataError(f"cannot be read: {message}", place=str(run.path / "recipe.yaml")) from err


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    """Both values of each dotted key that differs between two resolved recipes, in alphabetical order; None where one
    has none."""
    before, after = flatten(old), flatten(new)
    keys = sorted(key for key in before.keys() | after.keys() if not key.startswith(NO_CHANGE))
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}


def _refusal(run: RunFolder, changed: list[str], text: str, place: str = "") -> RecipeError:
    """The error: `text`, the changed keys, and a hint how to resume anyway."""
    keys = ", ".join(f"`{key}`" for key in changed[:MOST_NAMED])
    more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
    own = f"`grpo train --resume {run.path}` goes on with the run's own recipe"
    hint = f"{own}; without `--resume` a new run starts"
    if all(key in PACE for key in changed):
        hint = f"{own}, `grpo train RECIPE --resume {run.path}` at the new pace; without `--resume` a new run starts"
    elif all(map(_is_harmless, changed)):
        hint = f"`--resume {run.path} --resume-anyway` allows that"
    return RecipeError(f"{text} {keys}{more}", place=place, hint=hint)


def _is_harmless(key: str) -> bool:
    return key.startswith(HARMLESS) and key not in FIXED


def flatten(value: object, path: str = "") -> dict[str, object]:
    """Leaves of nested mappings by dotted key; lists are leaves."""
    if not isinstance(value, dict):
        return {path: value}
    out: dict[str, object] = {}
    for key, inner in value.items():
        out |= flatten(inner, f"{path}.{key}" if path else str(key))
    return out
