"""Verifier options checked against the `Options` dataclass of their kind, by name and by type.

The dataclasses live in `grpo_verifiers` and know nothing of pydantic: types are read from their annotations here.
A YAML list where a verifier wants a tuple becomes one, so that the verifier gets what it declares.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, Union

from pydantic import TypeAdapter, ValidationError

from grpo_cli.recipe.checking.mistakes import RecipeFinding, got_instead, unknown
from grpo_cli.recipe.kinds import KINDS, kind_class
from grpo_cli.recipe.paths import Path
from grpo_verifiers.names import nearest
from grpo_verifiers.shaping import TERMS, build_term
from grpo_verifiers.verifier import BadOption

OWN = ("kind", "weight", "primary", "right_at", "options")


def check_verifiers(data: dict[str, Any]) -> list[RecipeFinding]:
    """What is wrong with the kinds and options of `verify`; right values are put in place as their declared type."""
    verify = data.get("verify")
    found: list[RecipeFinding] = []
    for name, one in verify.items() if isinstance(verify, dict) else ():
        if isinstance(one, dict) and isinstance(one.get("kind"), str):
            found += _check(name, one)
    return found


def check_shaping(data: dict[str, Any]) -> list[RecipeFinding]:
    """What is wrong with the options of `shaping` terms; the terms' names are the model's to check."""
    shaping = data.get("shaping")
    found: list[RecipeFinding] = []
    for name, one in shaping.items() if isinstance(shaping, dict) else ():
        if name not in TERMS or not isinstance(one, dict):
            continue
        own, below = ({k: v for k, v in one.items() if k not in ("weight", "only", "options")}, one.get("options"))
        places: dict[str, Path] = {key: ("shaping", name, key) for key in own}
        if isinstance(below, dict):
            own |= below
            places |= {key: ("shaping", name, "options", key) for key in below}
        try:
            build_term(name, **own)
        except BadOption as err:
            found.append(RecipeFinding(places.get(err.option, ("shaping", name)), f"`shaping.{name}`: {err}"))
    return found


def _check(name: str, one: dict[str, Any]) -> list[RecipeFinding]:
    kind = one["kind"]
    if kind not in KINDS:
        near = nearest(kind, KINDS)
        hint = (f"did you mean `{near}`? " if near else "") + f"known: {', '.join(sorted(KINDS))}"
        return [RecipeFinding(("verify", name, "kind"), f"unknown verifier `{kind}` in `verify.{name}`", hint)]
    try:
        options = options_class(kind)
    except BadOption as err:  # a package's own kind that cannot be loaded
        return [RecipeFinding(("verify", name, "kind"), str(err))]
    hints = typing.get_type_hints(options)
    names = [f.name for f in dataclasses.fields(options)]
    found = []
    for path, holder, option, value in list(_options(name, one)):
        if option not in names:
            hint = unknown(option, [*names, *OWN[:4]], f"verifier `{kind}`")
            found.append(RecipeFinding(path, f"unknown option `{option}` of verifier `{kind}`", hint, at_key=True))
            continue
        try:
            holder[option] = TypeAdapter(hints[option]).validate_json(json.dumps(value), strict=True)
        except (ValidationError, TypeError, ValueError):
            message = f"`verify.{name}.{option}` must be {describe(hints[option])}{got_instead(path, value)}"
            found.append(RecipeFinding(path, message))
    return found or _build(name, kind, one, options)


def _build(name: str, kind: str, one: dict[str, Any], options: type) -> list[RecipeFinding]:
    """What the verifier itself says of values that have the right types."""
    values = {option: value for _, _, option, value in _options(name, one)}
    try:
        kind_class(kind)(options(**values))
    except BadOption as err:
        own = f"`verify.{name}.{err.option}`"
        said = str(err).removeprefix(f"`{err.option}` ")
        return [RecipeFinding(("verify", name, err.option), f"{own} {said}" if said != str(err) else f"{own}: {said}")]
    return []


def _options(name: str, one: dict[str, Any]) -> list[tuple[Path, dict[str, Any], str, Any]]:
    """Path, holder, name and value of every option, beside the verifier's own keys or under `options`."""
    below = one.get("options")
    flat: list[tuple[Path, dict[str, Any], str, Any]]
    flat = [(("verify", name, key), one, key, value) for key, value in one.items() if key not in OWN]
    if isinstance(below, dict):
        flat += [(("verify", name, "options", key), below, key, value) for key, value in below.items()]
    return flat


def options_class(kind: str) -> type:
    """The dataclass of a kind's options."""
    found: type = kind_class(kind).Options
    return found


def describe(hint: object) -> str:
    """A type in words: `a whole number`, `one of search, full`, `a list of text`."""
    simple = {int: "a whole number", float: "a number", bool: "`true` or `false`", str: "text"}
    if hint in simple:
        return simple[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin in (Union, types.UnionType):
        return " or ".join("nothing" if arg is type(None) else describe(arg) for arg in args)
    if origin in (list, tuple, set, frozenset):
        many = {int: "whole numbers", float: "numbers", str: "texts"}
        inner = [many.get(arg) or describe(arg) for arg in args if arg is not Ellipsis]
        return f"a list of {inner[0]}" if inner else "a list"
    if origin in (dict, Mapping) or hint is dict:
        return "a mapping"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(str(m.value) for m in hint)}"
    return str(getattr(hint, "__name__", hint))
