"""Whose code a recipe may run: what lies in a folder that came with a model runs in no command without `--trust`.

How this works: a recipe is asked as it is loaded, before anything that it names is imported or called. A folder came with a
model where it, or one of the three folders above it, holds weights, a `manifest.json` or a `run.json`. Refused are code inside such a folder,
any code of a recipe that lies in one and would be imported from there, the standard library's functions (`os:system`) as such
a recipe's code, and a judge of such a recipe, which would be sent completions and a key. A reward beside one's own recipe,
and installed packages, run as they are.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.named import NamedThing, named_by
from grpo_cli.recipe.reading.dump import stage_data
from grpo_cli.recipe.sections.fields import Names
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.text import path_of

TRUSTS = "GRPO_TRUST"
"""Set to 1 by `--trust`, for this process and those it starts."""
WEIGHTS = (".safetensors", ".safetensors.index.json", ".gguf", "_model.bin", "model.bin.index.json", ".pt", ".pth")
"""How files of weights end."""
CODE = (".py", ".pyc", ".so")
MARKS = ("manifest.json", "run.json")
LEVELS = 3
"""Folders above one that are looked at."""
HINT = "read it, then say `--trust`"


def trust(wanted: bool) -> bool:
    """What `--trust` does: lets code run that came with a model. Gives the wish back."""
    if wanted:
        os.environ[TRUSTS] = "1"
    return wanted


def refuse_foreign_code(recipe: Recipe, file: Path | None, base: Path | None = None) -> None:
    """Refuse a recipe whose code came with a model.

    Args:
        recipe: as it was loaded.
        file: where it was read from; None for stdin.
        base: the folder that its relative paths are taken from; None: the file's.

    Raises:
        RecipeError: it names such code, and `--trust` was not given.
    """
    if os.environ.get(TRUSTS) == "1":
        return
    base = base or (file.parent if file is not None else Path())
    came_with = _model_folder(file.parent) if file is not None else None
    stages = (Recipe.model_validate(stage_data(recipe, at)) for at in range(len(recipe.stages or ())))
    for one in (recipe, *stages):
        for named in named_by(one):
            if named.what is Names.CODE:
                _refuse_code(named, base, came_with)
        for name, spec in one.verify.items() if came_with is not None else ():
            url = spec.options.get("base_url")
            if isinstance(url, str) and urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1"):
                raise RecipeError(
                    f"`verify.{name}` of a recipe that came with a model (`{came_with}`) would send completions to `{url}`",
                    hint=HINT,
                )


def _refuse_code(named: NamedThing, base: Path, came_with: Path | None) -> None:
    where = named.text.rpartition(":")[0] or named.text
    folders = [base, *(base / folder for folder in named.folders)]
    for path in _files(where, [*folders, Path()]):
        if holder := _model_folder(path.parent) or _model_folder(path.resolve().parent):
            raise RecipeError(
                f"`{named.key}` names `{named.text}`, code inside `{holder}`, a folder that came with a model: it is not run",
                hint=HINT,
            )
    holder = next((found for folder in folders if _holds_code(folder) and (found := _model_folder(folder))), None)
    top = where.partition(".")[0]
    if came_with is not None and not where.endswith(".py") and top in sys.stdlib_module_names:
        raise RecipeError(
            f"`{named.key}` of a recipe that came with a model (`{came_with}`) names `{named.text}`, a function of Python's own"
            " library: it is not called",
            hint=HINT,
        )
    if holder is not None:
        raise RecipeError(
            f"`{named.key}` names `{named.text}`, which would import from `{holder}`, a folder that came with a model: it is"
            " not run",
            hint=HINT,
        )


def _files(where: str, folders: Sequence[Path]) -> Iterator[Path]:
    """The files that the code's name may mean in these folders."""
    for folder in folders:
        if where.endswith(".py"):
            paths = [folder / path_of(where)]
        else:
            inner = folder.joinpath(*where.split("."))
            paths = [inner.with_name(f"{inner.name}.py"), inner / "__init__.py"]
        yield from (path for path in paths if path.is_file())


def _model_folder(folder: Path) -> Path | None:
    """The nearest folder that came with a model: this one or one of the `LEVELS` above it, also where links lead."""
    for start in dict.fromkeys([Path(os.path.abspath(folder)), folder.resolve()]):
        for one in (start, *start.parents[:LEVELS]):
            # everything lies in these: a model in one of them did not bring the folders below
            is_shared = one in (Path("/"), Path(tempfile.gettempdir()), Path(os.path.expanduser("~")))
            if not is_shared and any(e.name in MARKS or e.name.endswith(WEIGHTS) for e in _entries(one)):
                return one
    return None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _holds_code(folder: Path) -> bool:
    """Whether Python would import anything from here, perhaps in the place of an installed package."""
    return any(one.name.endswith(CODE) or os.path.isfile(f"{one.path}/__init__.py") for one in _entries(folder))
