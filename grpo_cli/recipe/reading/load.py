"""From a path, a shipped name or stdin to a checked recipe, or to every mistake in it at once.

How this works: `read_documents` reads the file and all it extends, `stack` lays them and the flags over each other, `settle` finds
the files that single keys name, and `check` makes a `Recipe` of the merged mapping. A wrong value is cut out, so that the rest is
checked too; a missing one gets a stand-in. Rules between keys are asked once names, types and ranges are right, stages once the
whole has no mistake. What is found gets its place in a file or flag at the very end.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from grpo_cli.errors import Mistake, RecipeError
from grpo_cli.recipe.checking.mistakes import RecipeFinding, findings
from grpo_cli.recipe.checking.rules import check_rules
from grpo_cli.recipe.checking.values import check_values
from grpo_cli.recipe.reading.dump import stage_data
from grpo_cli.recipe.reading.layers import Layers, stack
from grpo_cli.recipe.reading.places import anchored, settle
from grpo_cli.recipe.reading.source import folder_of, read_documents
from grpo_cli.recipe.sections.fields import Path
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.recipe.trust import refuse_foreign_code
from grpo_cli.recipe.widening import complete, without_gone


def load(
    source: str | FilePath, sets: Sequence[str] = (), *, base: FilePath | None = None, of_run: bool = False
) -> Recipe:
    """The recipe of a path, a shipped name or `-` (stdin), under `--set` flags.

    `base` is the folder that its relative paths are taken from, where that is not the folder of the file. `of_run`: it is the
    recipe of a run that is only looked at, measured or exported, so that keys of sampling that are gone are left out.

    Raises:
        RecipeError: with every mistake of the files and flags, each with its place; or it names code that came with a model.
    """
    documents = read_documents(source)
    layers, top = stack(documents, sets), documents[-1]
    if layers.mistakes and any(not isinstance(one.data, dict) for one in documents):
        raise RecipeError(layers.mistakes)
    if not isinstance(top.data, dict):
        what = "is empty" if top.data is None else "is not a mapping of keys"
        raise RecipeError(f"the recipe {what}", place=top.name, hint="`grpo init` writes one to start from")
    layers.data.pop("extends", None)
    near = base if base is not None else folder_of(str(source))
    settle(layers, near)
    if of_run:
        layers.data = without_gone(layers.data)
    recipe, found = check(layers)
    if recipe is None or found or layers.mistakes:
        raise _error(layers, found, top.name)

    def said_in(path: Path) -> FilePath | None:
        said = layers.document(path)
        return FilePath(said.name).parent if said is not None and said is not top else None

    recipe = anchored(recipe, near, said_in)
    refuse_foreign_code(recipe, None if str(source) == "-" else FilePath(top.name), near)
    return recipe


def check(layers: Layers) -> tuple[Recipe | None, list[RecipeFinding]]:
    """The recipe of merged layers, and everything wrong with it; wrong values are left out to check the rest."""
    data = complete(deepcopy(layers.data))
    found = check_values(data)
    recipe: Recipe | None = None
    cut: set[Path] = set()
    for _ in range(5):
        try:
            recipe = Recipe.model_validate(data)
            break
        except ValidationError as err:
            new = findings(err)
            # what a cut left behind (a missing key, an empty list) is no mistake of its own: it lies on the path of a cut
            found += [
                f for f in new if not any(all(a == b for a, b in zip(f.path, path, strict=False)) for path in cut)
            ]
            cut |= {f.path for f in new}
            for one in new:
                _cut(data, one.path, "is missing" in one.message)
            data = complete(data)
    if recipe is None:
        return None, list(dict.fromkeys(found))
    # a rule would judge the stand-in of a wrong value
    wrong = {path[:1] for path in cut}
    for one in check_rules(recipe, layers.is_set):
        if one.path[:1] not in wrong and (one.idle is None or _matters(one.idle, layers.data, recipe)):
            found.append(one)
    for at in range(len(recipe.stages or ())) if not found else ():
        under: Path = ("stages", at)
        said = {path[2:]: layer for path, layer in layers.origin.items() if path[:2] == under}
        _, wrong_there = check(Layers(stage_data(recipe, at), said))
        found += [
            replace(one, path=(*under, *one.path), message=f"stage {at + 1}: {one.message}") for one in wrong_there
        ]
    return recipe, list(dict.fromkeys(found))


def _matters(path: Path, data: dict[str, Any], recipe: Recipe) -> bool:
    """Whether the recipe of this data would be another one if it did not say this key."""
    without = deepcopy(data)
    _cut(without, path, missing=False)
    try:
        return Recipe.model_validate(without) != recipe
    except ValidationError:
        return True


def _error(layers: Layers, found: list[RecipeFinding], name: str) -> RecipeError:
    """All mistakes in the order of the files' lines, those of flags last, with the hints of the first ten."""

    def order(place: str) -> tuple[bool, str, int, int]:
        file, *spot = place.rsplit(":", 2)
        if place.startswith("--set ") or len(spot) < 2 or not (spot[0].isdecimal() and spot[1].isdecimal()):
            return place.startswith("--set "), place, 0, 0
        return False, file, int(spot[0]), int(spot[1])

    placed: list[tuple[Mistake, str]] = [(m, "") for m in layers.mistakes]
    placed += [(layers.mistake(f.path, f.message, at_key=f.at_key), f.hint) for f in found]
    placed = [(m if m.place else replace(m, place=name), hint) for m, hint in placed]
    placed.sort(key=lambda pair: order(pair[0].place))
    hints = list(dict.fromkeys(hint for _, hint in placed[:10] if hint))
    return RecipeError([m for m, _ in placed], hint="\nhint: ".join(hints))


def _cut(data: dict[str, Any], path: Path, missing: bool) -> None:
    """Take a wrong value out, or put a stand-in for a missing one, so that the rest can be checked."""
    holder: Any = data
    for part in path[:-1]:
        try:
            inner = holder[part]
        except (KeyError, IndexError, TypeError):
            if not isinstance(holder, dict):
                return
            inner = holder[part] = {}
        holder = inner
    if missing and isinstance(holder, dict) and path:
        holder[path[-1]] = deepcopy(_STAND_INS.get(path) or _STAND_INS.get(path[-1:], {}))
    elif path and isinstance(holder, dict | list):
        try:
            del holder[path[-1]]  # type: ignore[arg-type]
        except (KeyError, IndexError, TypeError):
            return


_STAND_INS: dict[Path, Any] = {
    ("model",): {"path": "missing"},
    ("path",): "missing",
    ("data",): {"train": [{"from": "missing"}], "prompt": "missing"},
    ("train",): {"steps": 1},
    ("from",): "missing",
    ("data", "train"): [{"from": "missing"}],
    ("prompt",): "missing",
    ("kind",): "missing",
    ("verify",): {"math": {"kind": "math"}},
    ("steps",): 1,
    ("lr",): 1.0,
    ("template",): "missing",
    ("demonstration",): [{"template": "missing"}],
}
