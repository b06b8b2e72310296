"""Where the relative paths of a recipe count from: its folder.

How this works: a name is looked for in the folder of the file that holds it (a recipe that is extended may lie elsewhere), in
the recipe's folder, and then in the current one, where what `--set` names is meant to lie. What is found elsewhere than in the
recipe's folder is rewritten to count from there, so that a run's own recipe means the same from any folder, and after a move.
A name that is found nowhere stays as it is written. `run.dir` alone counts from the current folder: runs lie where one works.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path as FilePath

from grpo_cli.recipe.named import renamed
from grpo_cli.recipe.reading.layers import Layers
from grpo_cli.recipe.sections.fields import Names, Path, Placed
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.text import path_of, without_home

SCHEME = re.compile(r"[a-z0-9]+:")
RUNS = "runs"


def anchored(recipe: Recipe, base: FilePath, folder_of: Callable[[Path], FilePath | None] = lambda _: None) -> Recipe:
    """The recipe with its paths as this process opens them, and as they count from `base` in what it writes.

    Args:
        base: the recipe's folder.
        folder_of: the folder of the file that holds a key; None where none does.
    """

    def place(path: Path, what: Names, text: str) -> str:
        head, name, tail = _parts(path, what, text)
        if not name:
            return text
        if path_of(name).is_absolute():
            kept = head + without_home(name) + tail
            return Placed(text, kept) if kept != text else text
        said = folder_of(path)
        folders = [*([said] if said is not None else []), base, FilePath()]
        found = next((one for folder in folders if (one := _found(folder, name, head, what))), None)
        if found is None:
            return text
        near = from_folder(base, found)
        if found == base / name:
            near = name
        if what is Names.MODEL:
            return text if str(found) == os.path.normpath(name) else Placed(str(found), near)
        if near == name:
            return text
        is_here = found == FilePath(name) and not _is_pattern(name)
        return Placed(text, head + near + tail) if is_here else head + near + tail

    return renamed(recipe, place)


def settle(layers: Layers, base: FilePath) -> None:
    """Find what two keys name before the recipe is checked, from the folder of the file that holds them (with `--set`, from here).

    The function of a `python` verifier gets the folder that it is imported from, as it lies from the recipe's. The file of a chat
    template gives way to its text, so that a run holds what it was trained with: a template has braces, the name of a file none.
    """
    verify, model = layers.data.get("verify"), layers.data.get("model")
    for name, one in verify.items() if isinstance(verify, dict) else ():
        if isinstance(one, dict) and one.get("kind", name) == "python" and "path" not in one:
            said = layers.document(("verify", name, "function"))
            if isinstance(one.get("function"), str):
                one["function"] = without_home(one["function"])
            one["path"] = [from_folder(base, FilePath(said.name).parent if said is not None else FilePath())]
    path: Path = ("model", "chat_template")
    named = model.get("chat_template") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(named, str) or "{" in named or not named.strip():
        return
    said = layers.document(path)
    file = (FilePath(said.name).parent if said is not None else FilePath()) / path_of(named)
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
    else:
        model["chat_template"] = text


def from_folder(base: FilePath, path: FilePath) -> str:
    """A path as it counts from a folder; absolute where links lead another way."""
    whole = os.path.abspath(path)
    near = os.path.relpath(whole, os.path.abspath(base))
    leads_there = os.path.realpath(base / near) == os.path.realpath(whole)
    return near if leads_there else whole


def _parts(path: Path, what: Names, text: str) -> tuple[str, str, str]:
    """What stands before the path in a name, the path ("" for a name that is none), and what stands behind."""
    if what is Names.CODE:
        where, colon, name = text.rpartition(":")
        return ("", where, colon + name) if where.endswith(".py") else ("", "", "")
    if what is Names.ROWS and text.startswith("run:"):
        return "run:", text.removeprefix("run:"), ""
    # `train.critic.from: policy` is no folder of that name
    is_path = SCHEME.match(text) is None and (path[-1], text) != ("from", "policy")
    return "", text if is_path else "", ""


def _found(folder: FilePath, name: str, head: str, what: Names) -> FilePath | None:
    try:
        if head == "run:":
            places = [folder / name, folder / RUNS / name]
            return next((one for one in places if (one / "run.json").is_file()), None)
        place = folder / name
        is_rows = what is Names.ROWS and _is_pattern(name)  # nothing else takes a pattern
        is_there = place.exists() or (is_rows and any(glob.iglob(str(place), recursive=True)))
        return place if is_there else None
    except (OSError, ValueError):
        return None  # a text that is no name of a file


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")
