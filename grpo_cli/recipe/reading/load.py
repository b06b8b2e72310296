"""From a path, a shipped name or stdin to a checked recipe, or to every mistake in it at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from grpo_cli.errors import DataError, Mistake, RecipeError
from grpo_cli.recipe.checking.mistakes import RecipeFinding, findings
from grpo_cli.recipe.checking.options import check_shaping, check_verifiers
from grpo_cli.recipe.checking.rules import check_rules
from grpo_cli.recipe.checking.templates import check_templates
from grpo_cli.recipe.checking.trl_fields import check_trl
from grpo_cli.recipe.paths import Path, ancestors, dotted
from grpo_cli.recipe.reading.layers import Layers, stack
from grpo_cli.recipe.reading.places import anchored, from_folder
from grpo_cli.recipe.reading.source import Document, parse
from grpo_cli.recipe.reading.stages import stage_data
from grpo_cli.recipe.sections.recipe import Recipe, complete
from grpo_cli.recipe.sections.shorthand import without_gone
from grpo_cli.recipe.trust import refuse_foreign_code
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import base_of
from grpo_cli.text import path_of, without_home
from grpo_verifiers.names import nearest

STDIN = "<stdin>"
MOST_BYTES = 256_000  # pure Python reads about 100 kB of YAML a second


def load(
    source: str | FilePath, sets: Sequence[str] = (), *, base: FilePath | None = None, of_run: bool = False
) -> Recipe:
    """The recipe of a path, a shipped name or `-` (stdin), under `--set` flags.

    `base` is the folder that its relative paths are taken from, where that is not the folder of the file. `of_run`: it is the
    recipe of a run that is only looked at, measured or exported, so that keys of sampling that are gone are left out.

    Raises:
        RecipeError: with every mistake of the files and flags, each with its place; or it names code that came with a model.
    """
    documents = [d for d in _documents(source) if d is not None]
    layers = stack(documents, sets)
    top = documents[-1]
    if layers.mistakes and any(not isinstance(d.data, dict) for d in documents):
        raise RecipeError(layers.mistakes)
    if not isinstance(top.data, dict):
        what = "is empty" if top.data is None else "is not a mapping of keys"
        raise RecipeError(f"the recipe {what}", place=top.name, hint="`grpo init` writes one to start from")
    layers.data.pop("extends", None)
    if of_run:
        layers.data = without_gone(layers.data)
    near = base if base is not None else folder_of(str(source))
    _find_functions(layers, near)
    _read_chat_template(layers)
    recipe, found = check(layers)
    if recipe is None or found or layers.mistakes:
        raise _error(layers, found, top.name)
    recipe = anchored(recipe, near, lambda path: _folder_said(layers, path, top))
    refuse_foreign_code(recipe, None if str(source) == "-" else find(str(source)), near)
    return recipe


def folder_of(source: str) -> FilePath:
    """The folder that a recipe's relative paths count from: its file's; that of a run's or a checkpoint's own recipe is where
    the run began; of a shipped name and of stdin it is the current one."""
    if source == "-" or (source in shipped_recipes() and not FilePath(source).exists()):
        return FilePath()
    file = find(source)
    for folder in (file.parent, *file.absolute().parents[2:3]):
        if file.name == "recipe.yaml" and (folder / "run.json").is_file():
            with suppress(DataError):
                return base_of(RunFolder(folder)) or file.parent
    return file.parent


def check(layers: Layers) -> tuple[Recipe | None, list[RecipeFinding]]:
    """The recipe of merged layers, and everything wrong with it; wrong values are left out to check the rest."""
    data = complete(deepcopy(layers.data))
    found = [*check_verifiers(data), *check_shaping(data), *check_trl(data), *check_templates(data)]
    recipe: Recipe | None = None
    cut: set[Path] = set()
    for _ in range(5):
        try:
            recipe = Recipe.model_validate(data)
            break
        except ValidationError as err:
            new = findings(err)
            # what a cut left behind (a missing key, an empty list) is no mistake of its own
            found += [f for f in new if not any(_touch(f.path, path) for path in cut)]
            cut |= {f.path for f in new}
            for one in new:
                _cut(data, one.path, "is missing" in one.message)
            data = complete(data)
    if recipe is not None:
        # a rule would judge the stand-in of a wrong value
        wrong = {path[:1] for path in cut}
        found += [
            one
            for one in check_rules(recipe, layers.is_said)
            if one.path[:1] not in wrong and (one.idle is None or _matters(one.idle, layers.data, recipe))
        ]
        if not found:
            found += [one for at in range(len(recipe.stages or ())) for one in _check_stage(recipe, at, layers)]
    return recipe, list(dict.fromkeys(found))


def _matters(path: Path, data: dict[str, Any], recipe: Recipe) -> bool:
    """Whether the recipe of this data would be another one if it did not say this key."""
    without = deepcopy(data)
    _cut(without, path, missing=False)
    try:
        return Recipe.model_validate(complete(without)) != recipe
    except ValidationError:
        return True


def _check_stage(recipe: Recipe, at: int, layers: Layers) -> list[RecipeFinding]:
    """What is wrong with a stage laid over the recipe, at the places where the stage says it."""
    under: Path = ("stages", at)
    said = {path[2:]: layer for path, layer in layers.origin.items() if path[:2] == under}
    _, found = check(Layers(stage_data(recipe, at), said))
    return [replace(one, path=(*under, *one.path), message=f"stage {at + 1}: {one.message}") for one in found]


def find(name: str) -> FilePath:
    """The file of a path or a shipped name; of a folder its `recipe.yaml`.

    Raises:
        RecipeError: no such file; the hint holds the nearest shipped name.
    """
    path = FilePath(name)
    if path.is_file():
        return path
    if (path / "run.json").is_file():  # what it ran lies there too, but its paths are those of where it began
        raise RecipeError(f"`{name}` is a run, not a recipe", hint=f"`--resume {name}` goes on with it")
    if (path / "recipe.yaml").is_file():
        return path / "recipe.yaml"
    shipped = shipped_recipes()
    if name in shipped:
        return shipped[name]
    if path.is_dir():
        raise RecipeError(f"`{name}` is a folder without `recipe.yaml`", hint="name a `.yaml` file")
    near = nearest(name.removesuffix(".yaml").rsplit("/", 1)[-1], shipped)
    did = f"did you mean `{near}`? " if near else ""
    raise RecipeError(f"no recipe `{name}`", hint=f"{did}shipped: {', '.join(sorted(shipped))}")


def label_of(name: str) -> str:
    """What runs of a recipe are named after: its file, or the folder of a file that is only called `recipe`."""
    if name == "-":
        return "stdin"
    path = FilePath(name)
    if path.is_dir() and name not in shipped_recipes():
        return path.resolve().name
    return (path.stem if path.stem != "recipe" else path.resolve().parent.name) or path.stem


def shipped_recipes() -> dict[str, FilePath]:
    """Recipes that come with the package, by name; those of `unverified/`, which were never trained here, among them."""
    package = FilePath(__file__).resolve().parents[2]
    for folder in (package / "_recipes", package.parent / "recipes"):
        if folder.is_dir():
            return {p.stem: p for p in sorted(folder.rglob("*.yaml"))}
    return {}


def _documents(source: str | FilePath) -> list[Document]:
    """The document and all it extends, lowest first."""
    if str(source) == "-":
        doc, folder = parse(_stdin(), STDIN), FilePath()
        seen: list[FilePath] = []
    else:
        file = find(str(source))
        doc, folder, seen = _read(file), file.parent, [file.resolve()]
    chain = [doc]
    while isinstance(doc.data, dict) and doc.data.get("extends") is not None:
        below = doc.data["extends"]
        spot = doc.values.get(("extends",))
        if not isinstance(below, str) or not below:
            raise RecipeError([doc.mistake("`extends` must be a path or the name of a shipped recipe", spot)])
        beside = folder / below
        try:
            file = beside if beside.is_file() else find(below)
        except RecipeError as err:
            message = f"`extends`: no recipe `{below}`"
            raise RecipeError([doc.mistake(message, spot)], hint=err.hint) from None
        if file.resolve() in seen:
            names = " -> ".join(p.name for p in [*seen, file])
            raise RecipeError([doc.mistake(f"`extends` goes in a circle: {names}", spot)])
        seen.append(file.resolve())
        doc, folder = _read(file), file.parent
        chain.append(doc)
    return chain[::-1]


def _folder_said(layers: Layers, path: Path, top: Document) -> FilePath | None:
    """The folder of the extended file that says a key; None for the recipe's own and for those of `--set`."""
    said = next((layers.origin[one] for one in ancestors(path) if one in layers.origin), None)
    is_below = isinstance(said, Document) and said is not top
    return FilePath(said.name).parent if isinstance(said, Document) and is_below else None


def _find_functions(layers: Layers, base: FilePath) -> None:
    """Let a `python` verifier's function be found from any folder: beside the recipe that names it, or where the command was
    typed that does. A run's own recipe holds that place as it lies from the recipe's folder."""
    verify = layers.data.get("verify")
    for name, one in verify.items() if isinstance(verify, dict) else ():
        said = layers.origin.get(("verify", name, "function")) or layers.origin.get(("verify", name))
        is_python = isinstance(one, dict) and one.get("kind", name) == "python" and "path" not in one
        if is_python and said is not None:
            file = FilePath(said.name) if isinstance(said, Document) and said.name != STDIN else None
            if isinstance(one.get("function"), str):
                one["function"] = without_home(one["function"])
            one["path"] = [from_folder(base, file.parent if file is not None else FilePath())]


def _read_chat_template(layers: Layers) -> None:
    """Put the text of a chat template's file in its place, so that a run holds what it was trained with.

    A template has braces, the name of a file none. It lies beside the recipe that names it; with `--set`, from here.
    """
    model = layers.data.get("model")
    named = model.get("chat_template") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(named, str) or "{" in named or not named.strip():
        return
    path: Path = ("model", "chat_template")
    said = next((layers.origin[one] for one in ancestors(path) if one in layers.origin), None)
    in_file = isinstance(said, Document) and said.name != STDIN
    folder = FilePath(said.name).parent if isinstance(said, Document) and in_file else FilePath()
    file = folder / path_of(named)
    try:
        text = file.read_bytes().decode("utf-8")
        why = "" if "{" in text else "is no template: nothing stands in braces"
    except UnicodeDecodeError as err:
        why = f"is not UTF-8 text: {err.reason} at byte {err.start}"
    except OSError as err:
        why = f"cannot be read: {(err.strerror or 'error').lower()}"
    if why:
        layers.mistakes.append(layers.mistake(path, f"`{named}` {why}"))
        del model["chat_template"]
        return
    model["chat_template"] = text


def _read(file: FilePath) -> Document:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise RecipeError("too large for a recipe", place=str(file))
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise RecipeError(f"not UTF-8 text: {err.reason} at byte {err.start}", place=str(file)) from None
    except OSError as err:
        raise RecipeError(f"cannot be read: {(err.strerror or 'error').lower()}", place=str(file)) from None
    return parse(text, str(file))


def _stdin() -> str:
    if sys.stdin.isatty():
        raise RecipeError("`-` reads a recipe from stdin, and stdin is a terminal", hint="pipe a recipe in")
    try:
        return sys.stdin.buffer.read(MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise RecipeError(f"not UTF-8 text: {err.reason} at byte {err.start}", place=STDIN) from None


def _error(layers: Layers, found: list[RecipeFinding], name: str) -> RecipeError:
    placed: list[tuple[Mistake, str]] = [(m, "") for m in layers.mistakes]
    placed += [(layers.mistake(f.path, f.message, at_key=f.at_key), f.hint) for f in found]
    placed = [(m if m.place else replace(m, place=name), hint) for m, hint in placed]
    placed.sort(key=lambda pair: _order(pair[0].place))
    hints = list(dict.fromkeys(hint for _, hint in placed[:10] if hint))
    return RecipeError([m for m, _ in placed], hint="\nhint: ".join(hints))


def _order(place: str) -> tuple[bool, str, int, int]:
    if place.startswith("--set "):
        return True, place, 0, 0
    name, *rest = place.rsplit(":", 2)
    if len(rest) == 2 and rest[0].isdecimal() and rest[1].isdecimal():
        return False, name, int(rest[0]), int(rest[1])
    return False, place, 0, 0


def _touch(one: Path, other: Path) -> bool:
    """Whether one path is the other or lies above it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


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
        stand_in = _STAND_INS.get(dotted(path), _STAND_INS.get(str(path[-1]), {}))
        holder[path[-1]] = deepcopy(stand_in)
    elif path and isinstance(holder, dict | list):
        try:
            del holder[path[-1]]  # type: ignore[arg-type]
        except (KeyError, IndexError, TypeError):
            return


_STAND_INS: dict[str, Any] = {
    "model": {"path": "missing"},
    "path": "missing",
    "data": {"train": [{"from": "missing"}], "prompt": "missing"},
    "train": {"steps": 1},
    "from": "missing",
    "data.train": [{"from": "missing"}],
    "prompt": "missing",
    "kind": "missing",
    "verify": {"math": {"kind": "math"}},
    "steps": 1,
    "lr": 1.0,
    "template": "missing",
    "demonstration": [{"template": "missing"}],
}
