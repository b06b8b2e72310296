"""Mistakes of single values as findings in our words, each at its place, with a hint where a name is nearly right.

How this works: `check_values` gets the widened mapping before a `Recipe` is made of it, and looks at what the section classes take as
it comes: templates, options of verifiers and shaping terms, fields of TRL. Options are checked by name and type against the `Options`
dataclass of their kind, which knows nothing of pydantic; a YAML list where a verifier wants a tuple becomes one. Names and types of
TRL's `GRPOConfig` stand in `trl_fields.json`, because importing TRL takes 8 s and torch. A field that a key of the recipe sets is
refused with that key in the hint.

`findings` takes each error of a `ValidationError` by its type. An unknown key is looked up in this order: what other trainers call
it, keys that are gone, its nearest neighbour in the section, other sections that have it. A wrong value gets the words of what the
key takes. `RecipeFinding` is also what the rules between keys yield.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Union

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from grpo_cli.data.rows import leaked_golds
from grpo_cli.data.template import Template, TemplateError, column_or_template, parse
from grpo_cli.errors import masked, names_secret
from grpo_cli.recipe.checking.other_names import (
    ALWAYS,
    CHOICES,
    FIELDS,
    OURS,
    counterpart,
    method_elsewhere,
    misspelt,
    same_letters,
    why_none,
)
from grpo_cli.recipe.sections.fields import MANY, ONE, Path, dotted, field_docs
from grpo_cli.recipe.sections.recipe import Recipe, choices_at, inner_section, key_names, section
from grpo_cli.recipe.sections.rewards import KINDS, kind_class
from grpo_cli.recipe.widening import GONE
from grpo_verifiers.names import nearest
from grpo_verifiers.shaping import TERMS, build_term
from grpo_verifiers.verifier import BadOption

WORDED = {"run.webhook": "an address such as `https://host/path`, or `env:NAME`", "launch.rendezvous": "`host:port`"}
"""The meaning of a field's pattern, in words; the other patterns are times."""


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


LOOSE: tuple[Path, ...] = (("data", "system"), ("data", "prefill"))
"""Words to the model, in which braces that name no column stay."""
OWN = ("kind", "weight", "primary", "right_at", "options")


def check_values(data: dict[str, Any]) -> list[RecipeFinding]:
    """All of these in a complete recipe; right options of verifiers are put in place as their declared type."""
    return [*check_verifiers(data), *_shaping(data), *check_trl(data), *_templates(data)]


def _templates(data: dict[str, Any]) -> list[RecipeFinding]:
    """One finding for each template that cannot be read, and for words to the model that hold the gold answer."""
    rows = _section(data, "data")
    texts: list[tuple[Path, Any, bool]] = [
        (("data", key), rows.get(key), key == "id") for key in ("system", "prompt", "prefill", "answer", "id")
    ]
    images = rows.get("images")
    texts += [(("data", "images"), text, True) for text in (images if isinstance(images, list) else [images])]
    texts += [(("data", "columns", name), text, True) for name, text in _section(data, "data", "columns").items()]
    for part in ("warmup", "sft"):
        phases = data.get(part)
        for i, phase in enumerate(phases) if isinstance(phases, list) else ():
            shown = phase.get("demonstration") if isinstance(phase, dict) else None
            for j, one in enumerate(shown) if isinstance(shown, list) else ():
                text = one.get("template") if isinstance(one, dict) else None
                texts.append(((part, i, "demonstration", j, "template"), text, False))
    found = []
    read: dict[Path, Template] = {}
    for path, text, is_column in texts:
        if not isinstance(text, str):
            continue
        try:
            read[path] = column_or_template(text) if is_column else parse(text, loose=path in LOOSE)
        except TemplateError as err:
            near = "".join(c if c.isprintable() else "·" for c in text[err.at : err.at + 20])
            where = f", at `{near}`" if near else ""
            found.append(RecipeFinding(path, f"`{dotted(path)}`{where}: {err}"))
    gold = read.get(("data", "answer"))
    told = [(path, why) for path in LOOSE for why in leaked_golds(read.get(path), gold)]
    return found + [RecipeFinding(path, f"`{dotted(path)}` {why}") for path, why in told]


def check_verifiers(data: dict[str, Any]) -> list[RecipeFinding]:
    """What is wrong with the kinds and options of `verify`; right values are put in place as their declared type."""
    found: list[RecipeFinding] = []
    for name, one in _section(data, "verify").items():
        if isinstance(one, dict) and isinstance(one.get("kind"), str):
            found += _verifier(name, one)
    return found


def _verifier(name: str, one: dict[str, Any]) -> list[RecipeFinding]:
    kind = one["kind"]
    if kind not in KINDS:
        hint = _meant(kind, KINDS) + f"known: {', '.join(sorted(KINDS))}"
        return [RecipeFinding(("verify", name, "kind"), f"unknown verifier `{kind}` in `verify.{name}`", hint)]
    try:
        options = options_class(kind)
    except BadOption as err:  # a package's own kind that cannot be loaded
        return [RecipeFinding(("verify", name, "kind"), str(err))]
    hints = typing.get_type_hints(options)
    names = [f.name for f in dataclasses.fields(options)]
    below = one.get("options")
    # options stand beside the verifier's own keys, or under `options`
    given: list[tuple[Path, dict[str, Any], str]]
    given = [(("verify", name, key), one, key) for key in one if key not in OWN]
    given += [(("verify", name, "options", key), below, key) for key in below] if isinstance(below, dict) else []
    found = []
    for path, holder, option in given:
        if option not in names:
            hint = unknown(option, [*names, *OWN[:4]], f"verifier `{kind}`")
            found.append(RecipeFinding(path, f"unknown option `{option}` of verifier `{kind}`", hint, at_key=True))
            continue
        try:
            holder[option] = TypeAdapter(hints[option]).validate_json(json.dumps(holder[option]), strict=True)
        except (ValidationError, TypeError, ValueError):
            message = f"`verify.{name}.{option}` must be {describe(hints[option])}{got_instead(path, holder[option])}"
            found.append(RecipeFinding(path, message))
    if found:
        return found
    try:  # what the verifier itself refuses of values that have the right types
        kind_class(kind)(options(**{option: holder[option] for _, holder, option in given}))
    except BadOption as err:
        own = f"`verify.{name}.{err.option}`"
        said = str(err).removeprefix(f"`{err.option}` ")
        return [RecipeFinding(("verify", name, err.option), f"{own} {said}" if said != str(err) else f"{own}: {said}")]
    return []


def _shaping(data: dict[str, Any]) -> list[RecipeFinding]:
    """What is wrong with the options of `shaping` terms; the terms' names are the model's to check."""
    found: list[RecipeFinding] = []
    for name, one in _section(data, "shaping").items():
        if name not in TERMS or not isinstance(one, dict):
            continue
        own, below = {k: v for k, v in one.items() if k not in ("weight", "only", "options")}, one.get("options")
        places: dict[str, Path] = {key: ("shaping", name, key) for key in own}
        if isinstance(below, dict):
            own |= below
            places |= {key: ("shaping", name, "options", key) for key in below}
        try:
            build_term(name, **own)
        except BadOption as err:
            found.append(RecipeFinding(places.get(err.option, ("shaping", name)), f"`shaping.{name}`: {err}"))
    return found


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


PYTHON: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "`true` or `false`"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "text"),
    "list": ((list,), "a list"),
    "dict": ((dict,), "a mapping"),
    "none": ((type(None),), "null"),
}
"""What a kind of `trl_fields.json` takes, and its words."""
VLLM = "vllm_"
ADDRESS = re.compile(r"https?://[^/]")
LEVELS = ["debug", "info", "warning", "error", "critical", "detail", "passive"]
MODES = {"vllm_mode": ["colocate", "server"], "log_level": LEVELS, "log_level_replica": LEVELS}
"""What TRL and transformers take of a field that they call a string."""


MOST_PROCESSES = 1_024
"""As of `run.threads`: more than any machine here has cores."""


def check_trl(data: dict[str, Any]) -> list[RecipeFinding]:
    """What is wrong with `train.trl` and `sample.vllm`: unknown names, wrong types, fields that are ours."""
    found = []
    for name, value in _section(data, "train", "trl").items():
        path = ("train", "trl", name)
        if name in ALWAYS:
            found.append(RecipeFinding(path, f"`{name}` is not for `train.trl`", ALWAYS[name], at_key=True))
        elif name in OURS or name.startswith(VLLM):
            own = counterpart(name, value) if name in OURS else f"sample.vllm.{name.removeprefix(VLLM)}"
            found.append(RecipeFinding(path, f"`{name}` is not for `train.trl`", f"say `{own}`", at_key=True))
        elif name not in FIELDS:
            hint = _meant(name, FIELDS).strip() or "`train.trl` takes fields of TRL 1.16's GRPOConfig"
            found.append(RecipeFinding(path, f"unknown field `{name}` in `train.trl`", hint, at_key=True))
        else:
            found += _typed(path, name, value)
    known = [name.removeprefix(VLLM) for name in FIELDS if name.startswith(VLLM)]
    for name, value in _section(data, "sample", "vllm").items():
        path = ("sample", "vllm", name)
        if name not in known:
            hint = _meant(name.removeprefix(VLLM), known).strip() or f"`sample.vllm` has: {', '.join(sorted(known))}"
            found.append(RecipeFinding(path, f"unknown key `{name}` in `sample.vllm`", hint, at_key=True))
        else:
            found += _typed(path, VLLM + name, value)
            if name == "server_base_url" and isinstance(value, str) and not ADDRESS.match(value):
                said = f"`sample.vllm.server_base_url` is no address: {shown(value)}"
                found.append(RecipeFinding(path, said, "it begins with http:// or https://"))
    return found


def _typed(path: tuple[str, ...], name: str, value: object) -> list[RecipeFinding]:
    kinds = FIELDS[name].split(" | ")
    choices = CHOICES.get(name) or MODES.get(name)
    if choices and isinstance(value, str) and value not in choices:
        hint = _meant(value, choices).strip() or f"one of {', '.join(choices)}"
        return [RecipeFinding(path, f"`{'.'.join(path)}` cannot be {shown(value)}", hint)]
    fits = any(isinstance(value, PYTHON[kind][0]) and (kind == "bool" or not isinstance(value, bool)) for kind in kinds)
    if fits and isinstance(value, float) and not math.isfinite(value):
        return [RecipeFinding(path, f"`{'.'.join(path)}` must be a finite number, got {shown(value)}")]
    if name.endswith(("_workers", "_num_proc")) and isinstance(value, int) and value > MOST_PROCESSES:
        return [RecipeFinding(path, f"`{'.'.join(path)}` is a number of processes: at most {MOST_PROCESSES:,}")]
    if fits:
        return []
    wanted = " or ".join(PYTHON[kind][1] for kind in kinds)
    return [RecipeFinding(path, f"`{'.'.join(path)}` must be {wanted}{got_instead(path, value)}")]


def _section(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    here: Any = data
    for key in keys:
        here = here.get(key) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else {}


TYPES = {
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
    ("train", "reward_combine"),
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
    return f"{_meant(name, known)}{where} has: {', '.join(known)}"


def _meant(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f"did you mean `{near}`? " if near else ""


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
    what = TYPES.get(kind)
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
    if path == ("combine", "method") and value in ("normalise_then_sum", "split"):
        return RecipeFinding(
            path, f"`combine` rates one sample, `{value}` works across a group", f"say `train.reward_combine: {value}`"
        )
    if at_key:
        where = f"`{dotted(path)}`"
        return RecipeFinding(
            (*path, str(value)), f"unknown key `{value}` in {where}", unknown(str(value), choices, where), True
        )
    listed = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    hint = _meant(value, choices).strip() if isinstance(value, str) else ""
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
