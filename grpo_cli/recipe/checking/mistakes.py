"""Pydantic's errors as findings in our words, each at its place, with a hint where a name is nearly right.

How this works: `findings` takes each error of a `ValidationError` by its type. An unknown key is looked up in this order: what other
trainers call it, keys that are gone, its nearest neighbour in the section, other sections that have it. A wrong value gets the words
of what the key takes. `RecipeFinding` is also what the rules between keys yield.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from grpo_cli.errors import masked, names_secret
from grpo_cli.recipe.checking.other_names import counterpart, method_elsewhere, misspelt, same_letters, why_none
from grpo_cli.recipe.sections.fields import MANY, ONE, Path, dotted, field_docs
from grpo_cli.recipe.sections.recipe import Recipe, choices_at, inner_section, key_names, section
from grpo_cli.recipe.widening import GONE
from grpo_verifiers.names import nearest

WORDED = {"run.webhook": "an address such as `https://host/path`, or `env:NAME`", "launch.rendezvous": "`host:port`"}
"""What a pattern of a field asks for; the others are times."""


@dataclass(frozen=True, slots=True)
class RecipeFinding:
    """A mistake by recipe path, before it has a place in a file.

    `idle` is a key that is a mistake only because it is written down: it is none where the recipe means the same without it, as
    in the `recipe.yaml` of a run, which holds every key.
    """

    path: Path
    message: str
    hint: str = ""
    at_key: bool = False
    idle: Path | None = None


IsSet = Callable[[Path], bool]
"""Whether a layer, and not a default or a preset, holds a path."""


def first_set(is_set: IsSet, *paths: Path) -> Path:
    """The first path that was written down, so that the caret stands under something the user typed."""
    return next((path for path in paths if is_set(path)), paths[0])


KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "`true` or `false`",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
}

SHORT = {
    "model": "a name or a mapping",
    "eval": "a source or a list of them",
    "train": "a source or a list of them",
    "data": "a source",
    "demonstration": "a template or a list of them",
    "warmup": "a phase or a list of them",
}
"""What may stand for a section besides a mapping, by its key."""
PLAIN: tuple[Path, ...] = ((), ("data",), ("train",), ("eval",))

METHOD_KEYS: tuple[Path, ...] = (
    ("train", "algorithm"),
    ("train", "loss"),
    ("prefer", "loss"),
    ("train", "select"),
    ("train", "credit", "method"),
)
"""Keys whose values are names of methods, where the nearest name is often another one."""

RANGES = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def findings(err: ValidationError) -> list[RecipeFinding]:
    """One finding for each thing pydantic refused."""
    return [_finding(e) for e in err.errors(include_url=False)]


def shown(value: object) -> str:
    """A value as the user could have typed it, cut when long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, float) and not math.isfinite(value):
            text = {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
    except (TypeError, ValueError):
        text = repr(value)
    text = "".join(c if c.isprintable() else "·" for c in masked(text))
    return text if len(text) <= 60 else text[:57] + "…"


def got_instead(path: Path, value: object) -> str:
    """How a message ends that quotes what a key has; empty where the key names a secret."""
    return "" if names_secret(path) else f", got {shown(value)}"


def unknown(name: str, names: Iterable[str], where: str) -> str:
    """The hint for a name nobody knows: the nearest one, then all of them."""
    known = sorted(names)
    near = nearest(name, known)
    did = f"did you mean `{near}`? " if near else ""
    return f"{did}{where} has: {', '.join(known)}"


def _finding(error: ErrorDetails) -> RecipeFinding:
    kind, value, ctx = error["type"], error["input"], error.get("ctx", {})
    path: Path = tuple(p for p in error["loc"] if p not in ("[key]", ONE, MANY))
    if path and path[-1] == "source" and not (isinstance(value, dict) and "source" in value):
        path = (*path[:-1], "from")
    name = dotted(path)
    got = got_instead(path, value)
    if kind == "extra_forbidden":
        return _unknown_key(path, value)
    if kind == "missing":
        model = section(path[:-1])
        field = (
            next((key for key, one in model.model_fields.items() if (one.alias or key) == path[-1]), "")
            if model
            else ""
        )
        doc = field_docs(model).get(field) if model else None
        purpose = f"`{name}`: {doc.splitlines()[0].rstrip('.')}" if doc else ""
        return RecipeFinding(path, f"`{name}` is missing", purpose)
    if kind == "literal_error":
        if "[key]" in error["loc"]:
            return _unknown_choice(path[:-1], str(path[-1]), _choices(ctx["expected"]), at_key=True)
        return _unknown_choice(path, value, _choices(ctx["expected"]))
    if kind in RANGES:
        bound, word = RANGES[kind]
        limit = f"{ctx[bound]:,}" if isinstance(ctx[bound], int) else f"{ctx[bound]:g}"
        return RecipeFinding(path, f"`{name}` must be {word} {limit}{got}")
    if kind == "value_error":
        return RecipeFinding(path, f"`{name}` {ctx['error']}{got}")
    if kind in {"too_short", "string_too_short"}:
        return RecipeFinding(path, f"`{name}` must not be empty")
    if kind == "string_pattern_mismatch":
        return RecipeFinding(path, f"`{name}` must be {WORDED.get(name, 'a time such as `3h50m`')}{got}")
    what = KINDS.get(kind)
    if what is None:
        return RecipeFinding(path, f"`{name}`: {error['msg'].lower()}{got}")
    if kind in {"model_type", "model_attributes_type", "list_type"}:
        key = str(path[-2]) if len(path) > 1 and isinstance(path[-1], int) else str(path[-1])
        what = SHORT.get(key, what) if path not in PLAIN else what
    if value is None:
        return RecipeFinding(path, f"`{name}` must be {what}, got nothing")
    return RecipeFinding(path, f"`{name}` must be {what}{got}")


def _unknown_key(path: Path, value: object) -> RecipeFinding:
    key, parent = str(path[-1]), path[:-1]
    model = section(parent)
    where = f"`{dotted(parent)}`" if parent else "the recipe"
    names = key_names(model) if model else []
    hint = unknown(key, names, where)
    if (other := counterpart(key, value)) and other != dotted(path):
        return RecipeFinding(path, f"unknown key `{key}` in {where}", f"here it is `{other}`", at_key=True)
    if reason := GONE.get((str(parent[-1]) if parent else "", key)) or why_none(key):
        return RecipeFinding(path, f"unknown key `{key}` in {where}", reason, at_key=True)
    homes = [(name, inner_section(field.annotation)) for name, field in Recipe.model_fields.items()]
    elsewhere = [name for name, home in homes if home is not None and key in key_names(home)]
    if not nearest(key, names) and key in key_names(Recipe):
        hint = f"`{key}` stands at the top of the recipe"
    elif not nearest(key, names) and elsewhere:
        hint = f"`{key}` belongs under `{elsewhere[0]}`"
    return RecipeFinding(path, f"unknown key `{key}` in {where}", hint, at_key=True)


def _unknown_choice(path: Path, value: Any, choices: list[str], at_key: bool = False) -> RecipeFinding:
    near = nearest(value, choices) if isinstance(value, str) else None
    if path == ("combine", "method") and value == "normalise_then_sum":
        return RecipeFinding(
            path, f"`combine` rates one sample, `{value}` works across a group", f"say `train.reward_combine: {value}`"
        )
    if at_key:
        where = f"`{dotted(path)}`"
        return RecipeFinding(
            (*path, str(value)), f"unknown key `{value}` in {where}", unknown(str(value), choices, where), True
        )
    listed = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    hint = f"did you mean `{near}`?" if near else ""
    if path in METHOD_KEYS and isinstance(value, str):
        hint = _other_method(path, value, choices)
    return RecipeFinding(path, f"`{dotted(path)}` must be {listed}{got_instead(path, value)}", hint)


def _other_method(path: Path, name: str, choices: list[str]) -> str:
    """The hint for a method that this key does not take: its spelling, its own key, what it is here, or that it is not here."""
    here = same_letters(name, choices)
    for key in METHOD_KEYS:
        if here is None and (own := same_letters(name, choices_at(key))):
            return f"`{own}` belongs under `{dotted(key)}`"
    if near := here or misspelt(name, choices):
        return f"did you mean `{near}`?"
    elsewhere = method_elsewhere(name)
    if elsewhere.startswith("did you mean"):
        return elsewhere
    return f"`{name}` is not here by name: {elsewhere or 'another method than each of these'}"


def _choices(expected: str) -> list[str]:
    return expected.replace(" or ", ", ").replace("'", "").split(", ")
