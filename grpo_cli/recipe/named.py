"""External things that a recipe names (code, models, rows, files): each with its key, its path, and whether it may run.

How this works: which keys name something stands at the fields themselves (`sections.fields.Names`), and at a verifier's options in
their dataclass (`field(metadata={"names": "code"})`); keys that take anything (`options`, `train.trl`, …) name a file where there is
one. The walk goes through a recipe as it was loaded, so a new key needs its mark and nothing here.

`anchored`: a name is looked for in the folder of the file that holds it (a recipe that is extended may lie elsewhere), in the
recipe's folder, and then in the current one, where what `--set` names is meant to lie. What is found elsewhere than in the recipe's
folder is rewritten to count from there, so that a run's own recipe means the same from any folder, and after a move. A name that is
found nowhere stays as it is written. `run.dir` alone counts from the current folder: runs lie where one works.

`refuse_foreign_code`: code in a folder that came with a model runs in no command without `--trust`. A recipe is asked as it is
loaded, before anything that it names is imported or called. A folder came with a model where it, or one of the three folders above
it, holds weights or one of `MARKS`. Refused are code inside such a folder, any code of a recipe that lies in one
and would be imported from there, the standard library's functions (`os:system`) as such a recipe's code, and a judge, a server or a
webhook of such a recipe, which would be sent completions and a key. A run's recipe may name what a recipe in its base names, where
no model lies. A reward beside one's own recipe, and installed packages, run as they are.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import sys
import tempfile
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.sections.fields import Names, Path, Placed, Section, dotted
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.recipe.sections.rewards import Verify, kind_class
from grpo_cli.text import path_of, real_path, without_home
from grpo_verifiers.verifier import BadOption

S = typing.TypeVar("S", bound=Section)
SCHEME = re.compile(r"[a-z0-9]+:")
RUNS = "runs"
TRUSTS = "GRPO_TRUST"
"""Set to 1 by `--trust`, for this process and those it starts."""
WEIGHTS = re.compile(
    r"(?:\.(?:safetensors|gguf|pth?|ckpt|h5|msgpack|onnx)|model\.bin|-of-[0-9]{1,9}\.bin)(?:\.index\.json)?$",
    re.IGNORECASE,
)
"""How files of weights end."""
CODE = (".py", ".pyc", ".so")
MARKS = ("manifest.json", "run.json", "adapter_config.json", "generation_config.json", "tokenizer_config.json")
"""Files that only a run, a checkpoint or a model has: its weights may be missing, or of a format of their own."""
HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
"""Hosts that are this machine."""
LARGEST = 1 << 20
"""Bytes of a recipe that is read for what it names."""
LEVELS = 3
"""Folders above one that are looked at."""
HINT = "read it, then say `--trust`"


class NamedThing(NamedTuple):
    """One text of a recipe and what it names; `folders` are those that code of the same verifier is imported from too."""

    key: str
    what: Names
    text: str
    folders: tuple[str, ...] = ()


def _renamed(section: S, path: Path, rename: Callable[[Path, Names, str], str]) -> S:
    """The section with another text in the place of every name of code, a model or rows, but for what stages say themselves."""

    def changed(value: object, here: Path, what: Names | None) -> Any:
        if isinstance(value, Section):
            return _renamed(value, here, rename)
        if isinstance(value, list):
            new = [changed(inner, (*here, index), what) for index, inner in enumerate(value)]
            return value if all(one is other for one, other in zip(new, value, strict=True)) else new
        if isinstance(value, dict):
            new_values = {key: changed(inner, (*here, key), what) for key, inner in value.items()}
            return value if all(new_values[key] is value[key] for key in value) else new_values
        if isinstance(value, str) and what is not None and what in (Names.CODE, Names.MODEL, Names.ROWS):
            return rename(here, what, value)
        return value

    found: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value, here = getattr(section, name), (*path, field.alias or name)
        if here == ("stages",):
            continue
        if isinstance(section, Verify) and name == "options":
            options = dataclasses.fields(kind_class(section.kind).Options)
            models = {
                one.name for one in options if one.metadata.get("names") == Names.MODEL.value and one.name in value
            }
            new = value | {key: changed(value[key], (*path, key), Names.MODEL) for key in models}
            new = new if any(new[key] is not value[key] for key in models) else value
        else:
            new = changed(value, here, _mark(field.annotation, field.metadata))
        if new is not value:
            found[name] = new
    return section.model_copy(update=found) if found else section


def named_by(section: Section, path: Path = ()) -> Iterator[NamedThing]:
    """All that a recipe names, but for what its stages say themselves; `path`: where a section stands in it."""
    for name, field in type(section).model_fields.items():
        value, here = getattr(section, name), (*path, field.alias or name)
        if here == ("stages",):
            continue
        if isinstance(section, Verify) and name == "options":
            yield from _of_options(section.kind, value, path)
        else:
            yield from _of_value(value, here, _mark(field.annotation, field.metadata))


def _of_options(kind: str, options: Mapping[str, Any], path: Path) -> Iterator[NamedThing]:
    marks = {one.name: one.metadata.get("names") for one in dataclasses.fields(kind_class(kind).Options)}
    searched = [option for option, mark in marks.items() if mark == Names.FOLDERS.value]
    folders = tuple(folder for option in searched for folder in options.get(option, []))
    for option, named in options.items():
        if option not in searched:
            yield from _of_value(named, (*path, option), Names(marks.get(option) or Names.FILE.value), folders)


def _of_value(value: object, path: Path, what: Names | None, folders: tuple[str, ...] = ()) -> Iterator[NamedThing]:
    if isinstance(value, Section):
        yield from named_by(value, path)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _of_value(inner, (*path, key), what, folders)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _of_value(inner, (*path, index), what, folders)
    elif isinstance(value, str) and what is not None and not (what is Names.CODE and "://" in value):  # an address
        yield NamedThing(dotted(path), what, value, folders)


def _mark(annotation: object, metadata: Iterable[Any] = ()) -> Names | None:
    """The mark of a field's type, at whatever depth it stands; FILE of a mapping that takes anything."""
    found = next((one for one in metadata if isinstance(one, Names)), None)
    if found is not None:
        return found
    if typing.get_origin(annotation) is dict:
        return Names.FILE if typing.get_args(annotation)[1] is Any else None
    return next(
        (mark for arg in typing.get_args(annotation) if (mark := _mark(arg, getattr(arg, "__metadata__", ())))), None
    )


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

    return _renamed(recipe, (), place)


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


def refuse_foreign_code(recipes: Iterable[Recipe], file: FilePath | None, base: FilePath) -> None:
    """Refuse a recipe whose code came with a model.

    Args:
        recipes: as it was loaded, and those of its stages.
        file: where it was read from; None for stdin.
        base: the folder that its relative paths are taken from.

    Raises:
        RecipeError: it names such code, and `--trust` was not given.
    """
    if os.environ.get(TRUSTS) == "1":
        return
    came_with = _model_folder(file.parent) if file is not None else None
    own = "" if came_with is None or _model_folder(base) is not None else _recipes_in(base)
    for one in recipes:
        for named in named_by(one):
            if named.what is Names.CODE:
                _refuse_code(named, base, None if named.text in own else came_with)
        world = one.environment
        for key, command in {} if world is None else world.commands.items():
            words = [base / word for word in command]
            holder = None if all(word in own for word in command) else came_with
            holder = holder or next((f for w in words if w.is_file() and (f := _model_folder(w.parent))), None)
            if holder is not None:
                said = f"`environment.{key}` runs `{' '.join(command)}`, which came with a model (`{holder}`)"
                raise RecipeError(f"{said}: it is not run", hint=HINT)
        sends = {f"verify.{name}": ("completions", spec.options.get("base_url")) for name, spec in one.verify.items()}
        sends |= {f"environment.{key}": ("completions", url) for key, url in (world.urls if world else {}).items()}
        sends |= {
            "run.webhook": ("results", one.run.webhook),
            "sample.vllm": ("prompts", one.sample.vllm.get("server_base_url") or one.sample.vllm.get("server_host")),
        }
        for key, (what, url) in sends.items() if came_with is not None else ():
            if isinstance(url, str) and url not in own and _host(url) not in HERE:
                raise RecipeError(
                    f"`{key}` of a recipe that came with a model (`{came_with}`) would send {what} to `{url}`",
                    hint=HINT,
                )


def refuse_foreign_options(kind: str, options: Mapping[str, Any]) -> None:
    """The same for a verifier's options as a command line has them.

    Raises:
        RecipeError: as `refuse_foreign_code`.
    """
    if os.environ.get(TRUSTS) == "1":
        return
    with suppress(BadOption):  # no such kind: refused where it is made
        for named in _of_options(kind, options, ("--option",)):
            if named.what is Names.CODE:
                _refuse_code(named, FilePath(), None)


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname if "//" in url else url
    except ValueError:
        return None


def _recipes_in(folder: FilePath) -> str:
    """What the recipes in a folder say: a run's own recipe may name what the one that it began from names."""
    texts = []
    for entry in _entries(folder):
        if entry.name.endswith((".yaml", ".yml")) and entry.is_file() and entry.stat().st_size <= LARGEST:
            texts.append(FilePath(entry.path).read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


def _refuse_code(named: NamedThing, base: FilePath, came_with: FilePath | None) -> None:
    where = named.text.rpartition(":")[0] or named.text
    folders = [base, *(base / folder for folder in named.folders)]
    for path in _files(where, [*folders, FilePath()]):
        if holder := _model_folder(path.parent) or _model_folder(real_path(path).parent):
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


def _files(where: str, folders: Iterable[FilePath]) -> Iterator[FilePath]:
    """The files that the code's name may mean in these folders."""
    for folder in folders:
        if where.endswith(".py"):
            paths = [folder / path_of(where)]
        else:
            inner = folder.joinpath(*where.split("."))
            paths = [inner.with_name(f"{inner.name}.py"), inner / "__init__.py"]
        yield from (path for path in paths if path.is_file())


def _model_folder(folder: FilePath) -> FilePath | None:
    """The nearest folder that came with a model: this one or one of the `LEVELS` above it, also where links lead."""
    for start in dict.fromkeys([FilePath(os.path.abspath(folder)), real_path(folder)]):
        for one in (start, *start.parents[:LEVELS]):
            # everything lies in these: a model in one of them did not bring the folders below
            is_shared = one in (FilePath("/"), FilePath(tempfile.gettempdir()), FilePath(os.path.expanduser("~")))
            if not is_shared and any(e.name in MARKS or WEIGHTS.search(e.name) for e in _entries(one)):
                return one
    return None


def _entries(folder: FilePath) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _holds_code(folder: FilePath) -> bool:
    """Whether Python would import anything from here, perhaps in the place of an installed package."""
    return any(one.name.endswith(CODE) or os.path.isfile(f"{one.path}/__init__.py") for one in _entries(folder))
