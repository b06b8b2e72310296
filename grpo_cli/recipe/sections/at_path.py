"""Which section a path of a recipe leads to, and what its keys take; for messages and `--set`."""

from __future__ import annotations

import types
import typing
from typing import Literal

from pydantic import BaseModel

from grpo_cli.recipe.paths import Path
from grpo_cli.recipe.sections.recipe import Recipe


def section(path: Path) -> type[BaseModel] | None:
    """The model class at a path, through lists and named entries."""
    model: type[BaseModel] | None = Recipe
    for part in path:
        if isinstance(part, int) or part.isdecimal():
            continue
        if model is None:
            return None
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part in fields:
            model = inner_section(fields[part].annotation)
        elif model.__name__ not in {"Verify", "Shaping"}:
            return None
    return model


def key_names(model: type[BaseModel]) -> list[str]:
    """The keys of a section as a user writes them."""
    return [
        field.alias or name
        for name, field in model.model_fields.items()
        if name != "options" or model.__name__ == "Source"
    ]


def choices_at(path: Path) -> list[str]:
    """The words that the key at a path takes; none where it takes others."""
    model = section(path[:-1])
    fields = {field.alias or name: field for name, field in model.model_fields.items()} if model else {}
    annotation = fields[str(path[-1])].annotation if path[-1] in fields else None
    return [str(one) for one in typing.get_args(annotation)] if typing.get_origin(annotation) is Literal else []


def takes_text(path: Path) -> bool:
    """Whether the key at a path takes text and nothing else (but null)."""
    model = section(path[:-1])
    fields = {field.alias or name: field for name, field in model.model_fields.items()} if model else {}
    field = fields.get(str(path[-1]))
    return field is not None and _is_text(field.annotation)


def _is_text(annotation: object) -> bool:
    if typing.get_origin(annotation) is typing.Annotated:
        return _is_text(typing.get_args(annotation)[0])
    args = typing.get_args(annotation)
    if args and (typing.get_origin(annotation) in (typing.Union, types.UnionType)):
        return all(arg is type(None) or _is_text(arg) for arg in args)
    return annotation is str


def inner_section(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    for arg in reversed(typing.get_args(annotation)):
        found = inner_section(arg)
        if found is not None:
            return found
    return None
