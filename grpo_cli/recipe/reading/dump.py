"""The way out: a recipe as YAML text that loads back to an equal recipe, as a plain mapping, and the recipes of its stages.

How this works: `plain` gives the mapping that a user would write to get this recipe, with everything written out; `to_yaml` is its
text. A stage is the plain mapping of the whole with the stage's keys laid over it. The whole is the resolved recipe, so
that a run resumed from its own `recipe.yaml` has the same stages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from io import StringIO
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from grpo_cli.recipe.named import anchored, from_folder
from grpo_cli.recipe.reading.source import eaten_commands, spelled_out
from grpo_cli.recipe.sections.fields import Placed, written
from grpo_cli.recipe.sections.recipe import Recipe, Stage
from grpo_cli.recipe.widening import PRESETS, complete, merge, widen


class _Representer(SafeRepresenter):
    """Text with line breaks that only YAML 1.1 knows is escaped; the plain writer would turn them into `\\n`."""

    def represent_str(self, data: str) -> Any:
        style = '"' if any(c in data for c in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def to_yaml(recipe: Recipe) -> str:
    """YAML of everything, defaults and presets written out; loading it gives an equal recipe.

    It holds every field but `extends` (and an environment's `role`, where that is `tool` anyway). Options of a verifier stand beside
    the verifier's own keys.
    """
    out = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 4096
    yaml.allow_unicode = True
    yaml.dump(plain(recipe), out)
    text = out.getvalue()
    return spelled_out(text) if any(eaten_commands(text)) else text


def filled_up(data: dict[str, Any]) -> dict[str, Any]:
    """A resolved recipe with the keys that came after it was written, at their defaults; unchanged if it no longer loads."""
    try:
        return plain(Recipe.model_validate(data))
    except ValidationError:
        return data


def recipe_sha(recipe: Recipe) -> str:
    """SHA-256 of the text, in hexadecimal digits: two recipes that mean the same have the same."""
    return hashlib.sha256(to_yaml(recipe).encode()).hexdigest()


def plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as the mapping a user would write, everything said but the role of an environment whose calls fill it."""
    data: dict[str, Any] = recipe.model_dump(by_alias=True, mode="json")
    data.pop("extends")
    if recipe.environment is not None and recipe.environment.has_calls:
        data["environment"].pop("role")
    for name, spec in recipe.verify.items():
        data["verify"][name]["options"] |= {
            key: written(value) for key, value in spec.options.items() if isinstance(value, Placed)
        }
    for section in ("verify", "shaping"):
        for one in data[section].values():
            one |= one.pop("options")
    for stage in data["stages"] or ():
        stage |= stage.pop("keys")
    return data


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
        if not PRESETS[below["train"]["algorithm"]]["credit"]:  # what was written beside the method stays
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
