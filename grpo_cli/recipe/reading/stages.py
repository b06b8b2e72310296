"""The recipe of one stage: the whole recipe with the stage's keys laid over it, as data and checked.

What a stage lies over is the resolved recipe, so that a run that is taken up from its own `recipe.yaml` means the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from grpo_cli.recipe.presets import PRESETS, merge
from grpo_cli.recipe.reading.dump import plain
from grpo_cli.recipe.reading.places import anchored, from_folder
from grpo_cli.recipe.sections.recipe import Recipe, complete
from grpo_cli.recipe.sections.shorthand import widen
from grpo_cli.recipe.sections.stages import Stage

OF_A_METHOD = {"prefer": "prefer", "sft": "sft"}
"""Sections that only one method has: another stage does not take them over."""


def stage_data(recipe: Recipe, at: int) -> dict[str, Any]:
    """The data of stage `at` (from 0), complete: what it says itself, then what the recipe says for all.

    The recipe's warm-up is the first stage's, and that of stages that start `from: base`.
    """
    assert recipe.stages is not None
    stage = recipe.stages[at]
    below, over = plain(recipe), widen(dict(stage.keys))
    below.pop("stages")
    train = over.get("train")
    train = train if isinstance(train, dict) else {}
    if "algorithm" in train:  # a method of its own fills its keys anew
        filled = set(PRESETS["default"])
        if not PRESETS[below["train"]["algorithm"]]["credit"]:  # what was said beside the method stays
            filled.remove("credit")
        below["train"] = {k: v for k, v in below["train"].items() if k not in filled}
    method = train.get("method", below["train"]["method"])
    for section, of in OF_A_METHOD.items():
        if method != of:
            below[section] = None
    if at and stage.start != "base":
        below["warmup"] = None
    return complete(merge(below, over))


def stage_recipe(
    recipe: Recipe, at: int, *, start: FilePath | None, folder: FilePath, base: FilePath | None = None
) -> Recipe:
    """The checked recipe of stage `at`: from the weights at `start` (None: the recipe's model), written into `folder`.

    A source `run:STAGE` is that of an earlier stage. `base` is the recipe's folder.
    """
    near = base or FilePath()
    data = stage_data(recipe, at)
    assert recipe.stages is not None
    data["run"] |= {"dir": str(folder), "name": stage_folder(at, recipe.stages[at])}
    if start is not None:
        data["model"] |= {"path": from_folder(near, start), "gguf_file": None, "revision": None}
    earlier = {
        f"run:{one.name}": f"run:{from_folder(near, folder / stage_folder(i, one))}"
        for i, one in enumerate(recipe.stages[:at])
    }
    return anchored(Recipe.model_validate(_renamed(data, earlier)), near)


def stage_folder(at: int, stage: Stage) -> str:
    """`stage-2-sft`: the name of a stage's run inside the folder of the whole."""
    return f"stage-{at + 1}-{stage.name}"


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: names.get(inner, inner) if key == "from" and isinstance(inner, str) else _renamed(inner, names)
            for key, inner in value.items()
        }
    return [_renamed(one, names) for one in value] if isinstance(value, list) else value
