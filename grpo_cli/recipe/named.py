"""What a recipe names outside of itself (code, models, rows, files), each with the key that names it.

How this works: which keys do so stands at the fields themselves (`sections.fields.Names`), and at a verifier's options in their
dataclass (`field(metadata={"names": "code"})`); keys that take anything (`options`, `train.trl`, …) name a file where there is one.
The walk goes through a recipe as it was loaded, so a new key needs its mark and nothing here.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from grpo_cli.recipe.sections.fields import Names, Path, Section, dotted
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.recipe.sections.rewards import Verify, kind_class

S = typing.TypeVar("S", bound=Section)


class NamedThing(NamedTuple):
    """One text of a recipe and what it names; `folders` are those that code of the same verifier is imported from too."""

    key: str
    what: Names
    text: str
    folders: tuple[str, ...] = ()


def named_by(recipe: Recipe) -> Iterator[NamedThing]:
    """All that a recipe names, but for what its stages say themselves."""
    return _of_section(recipe, ())


def renamed(recipe: Recipe, rename: Callable[[Path, Names, str], str]) -> Recipe:
    """The recipe with another text in the place of every name of code, a model or rows, but for what its stages say themselves."""
    return _renamed(recipe, (), rename)


def _renamed(section: S, path: Path, rename: Callable[[Path, Names, str], str]) -> S:
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
            marks = {
                one.name: one.metadata.get("names") for one in dataclasses.fields(kind_class(section.kind).Options)
            }
            models = {key for key in value if marks.get(key) == Names.MODEL.value}
            new = value | {key: changed(value[key], (*path, key), Names.MODEL) for key in models}
            new = new if any(new[key] is not value[key] for key in models) else value
        else:
            new = changed(value, here, _mark(field.annotation, field.metadata))
        if new is not value:
            found[name] = new
    return section.model_copy(update=found) if found else section


def _of_section(section: Section, path: Path) -> Iterator[NamedThing]:
    for name, field in type(section).model_fields.items():
        value, here = getattr(section, name), (*path, field.alias or name)
        if here == ("stages",):
            continue
        if isinstance(section, Verify) and name == "options":
            yield from _of_options(section, path)
        else:
            yield from _of_value(value, here, _mark(field.annotation, field.metadata))


def _of_value(value: object, path: Path, what: Names | None, folders: tuple[str, ...] = ()) -> Iterator[NamedThing]:
    if isinstance(value, Section):
        yield from _of_section(value, path)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _of_value(inner, (*path, key), what, folders)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _of_value(inner, (*path, index), what, folders)
    elif isinstance(value, str) and what is not None:
        yield NamedThing(dotted(path), what, value, folders)


def _of_options(spec: Verify, path: Path) -> Iterator[NamedThing]:
    marks = {one.name: one.metadata.get("names") for one in dataclasses.fields(kind_class(spec.kind).Options)}
    folders = tuple(
        folder for name, mark in marks.items() if mark == Names.FOLDERS.value for folder in spec.options.get(name, [])
    )
    for name, value in spec.options.items():
        mark = marks.get(name) or Names.FILE.value
        if mark != Names.FOLDERS.value:
            yield from _of_value(value, (*path, name), Names(mark), folders)


def _mark(annotation: object, metadata: typing.Iterable[Any] = ()) -> Names | None:
    """The mark of a field's type, at whatever depth it stands; FILE of a mapping that takes anything."""
    found = next((one for one in metadata if isinstance(one, Names)), None)
    if found is not None:
        return found
    if typing.get_origin(annotation) is dict:
        return Names.FILE if typing.get_args(annotation)[1] is Any else None
    return next(
        (mark for arg in typing.get_args(annotation) if (mark := _mark(arg, getattr(arg, "__metadata__", ())))), None
    )
