"""The facts about a run before its first step and after its last, from the trainer or from its folder alone.

`RunInfo` is what a display starts with and `Card` what it ends with. `info_of` reads the first from a folder, of an old or damaged
run as far as it goes; `base_of` finds the folder that the recipe's paths count from. All times are seconds; None is "not measured".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from grpo_cli.errors import DataError
from grpo_cli.run.folder import RunFolder, base_of, named_recipe
from grpo_cli.run.typed import recipe_of_text

Metrics = Mapping[str, Any]
M = TypeVar("M", bound=Metrics)
BETWEEN = "eval/between"
"""Marks an evaluation of the first `eval.between` rows only."""
Level = Literal["info", "good", "warn", "error"]
Status = Literal["done", "stopped", "paused", "rolled_back", "interrupted", "failed"]
"""How a run ended."""


def of_all_rows(evaluations: Iterable[M]) -> list[M]:
    """The evaluations of all held-out rows. The best one is chosen among these, since a score of few rows may be high
    by chance."""
    return [one for one in evaluations if not one.get(BETWEEN)]


@dataclass(frozen=True, slots=True)
class RewardSource:
    """A part of the reward and its weight; verifiers first, then shaping terms."""

    name: str
    weight: float = 1.0
    primary: bool = False


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is known before the first step."""

    run: str
    recipe: str = ""
    sha: str = ""
    model: str = ""
    folder: str = ""
    log: str = ""
    device: str = ""
    steps: int = 0
    start_step: int = 0
    prompts: int = 0
    group: int = 0
    max_tokens: int | None = None
    seed: int | None = None
    sources: tuple[RewardSource, ...] = ()
    command: str = "train"


@dataclass(frozen=True, slots=True)
class Card:
    """The end of a run. `history` and `evaluations` are the lines of `metrics.jsonl`; the card's numbers come from them."""

    status: Status
    wall_s: float
    history: tuple[Metrics, ...] = ()
    evaluations: tuple[Metrics, ...] = ()
    device: str = ""
    reason: str = ""
    best: str = ""
    report: str = ""
    evidence: str = ""
    """The file behind the alarm that ended the run."""
    next: str = ""
    """The command to go on with; `other` is another one."""
    other: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase over the whole run; where empty, the sums of `time/…` in `history`."""


def info_of(folder: RunFolder) -> RunInfo:
    """The facts in the saved recipe and the manifest. The recipe is not checked, so that old runs stay readable.

    Raises:
        DataError: a manifest that cannot be read.
    """
    recipe, manifest = recipe_of(folder), folder.manifest()
    sample, train, model = (recipe.get(key, {}) for key in ("sample", "train", "model"))
    sources = [
        RewardSource(name, float(options.get("weight", 1.0)), bool(options.get("primary")))
        for part in ("verify", "shaping")
        for name, options in recipe.get(part, {}).items()
    ]
    return RunInfo(
        run=folder.name,
        recipe=str(manifest.get("recipe") or named_recipe(manifest)),  # runs of old did not note it
        sha=str(manifest.get("recipe_sha") or "")[:8],
        model=str(model.get("path", "")),
        folder=str(folder.path),
        log=str(folder.log_path),
        device=str(manifest.get("device") or ""),
        steps=int(train.get("steps") or manifest.get("epoch_steps") or 0),
        prompts=int(sample.get("prompts") or 0),
        group=int(sample.get("group") or 0),
        max_tokens=sample.get("max_tokens"),
        seed=train.get("seed"),
        sources=tuple(sources),
        command="watch",
    )


def recipe_of(folder: RunFolder) -> dict[str, Any]:
    """The saved recipe, unchecked but for the types of what readers need; empty where it cannot be read."""
    try:
        return recipe_of_text(folder.recipe_text)
    except (DataError, ValueError):
        return {}


def recipe_file(folder: RunFolder) -> str:
    """The file that the run's recipe was read from; empty where `run.json` has none, or it is a shipped one."""
    manifest = folder.manifest()
    named, base = named_recipe(manifest), str(base_of(folder) or "")
    if named.endswith((".yaml", ".yml")):
        return str(Path(base) / Path(named).name) if base else named
    # a folder means the `recipe.yaml` in it, and its runs are named after it
    is_folder = bool(named and base) and Path(base).name == manifest.get("recipe")
    return str(Path(base) / "recipe.yaml") if is_folder else ""
