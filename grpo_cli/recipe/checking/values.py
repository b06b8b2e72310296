"""Values that the section classes take as they come: templates, options of verifiers and shaping terms, fields of TRL.

How this works: the four functions get the widened mapping before a `Recipe` is made of it, and return one finding for each value.
Options are checked by name and type against the `Options` dataclass of their kind, which knows nothing of pydantic; a YAML list
where a verifier wants a tuple becomes one. Names and types of TRL's `GRPOConfig` stand in `trl_fields.json`, because importing
TRL takes 8 s and torch. A field that a key of the recipe sets is refused with that key in the hint.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, Union

from pydantic import TypeAdapter, ValidationError

from grpo_cli.data.rows import leaked_golds
from grpo_cli.data.template import Template, TemplateError, column_or_template, parse
from grpo_cli.recipe.checking.mistakes import RecipeFinding, got_instead, shown, unknown
from grpo_cli.recipe.checking.other_names import ALWAYS, CHOICES, FIELDS, OURS, counterpart
from grpo_cli.recipe.sections.fields import Path, dotted
from grpo_cli.recipe.sections.rewards import KINDS, kind_class
from grpo_verifiers.names import nearest
from grpo_verifiers.shaping import TERMS, build_term
from grpo_verifiers.verifier import BadOption

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
    texts += [(("data", "columns", name), text, True) for name, text in _section(data, "data", "columns").items()]
    for section in ("warmup", "sft"):
        phases = data.get(section)
        for i, phase in enumerate(phases) if isinstance(phases, list) else ():
            shown = phase.get("demonstration") if isinstance(phase, dict) else None
            for j, one in enumerate(shown) if isinstance(shown, list) else ():
                text = one.get("template") if isinstance(one, dict) else None
                texts.append(((section, i, "demonstration", j, "template"), text, False))
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
        near = nearest(kind, KINDS)
        hint = (f"did you mean `{near}`? " if near else "") + f"known: {', '.join(sorted(KINDS))}"
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


PYTHON: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list": (list,),
    "dict": (dict,),
    "none": (type(None),),
}
WORDS = {
    "bool": "`true` or `false`",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
    "none": "null",
}
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
            near = nearest(name, FIELDS)
            hint = f"did you mean `{near}`?" if near else "`train.trl` takes fields of TRL 1.16's GRPOConfig"
            found.append(RecipeFinding(path, f"unknown field `{name}` in `train.trl`", hint, at_key=True))
        else:
            found += _typed(path, name, value)
    known = [name.removeprefix(VLLM) for name in FIELDS if name.startswith(VLLM)]
    for name, value in _section(data, "sample", "vllm").items():
        path = ("sample", "vllm", name)
        if name not in known:
            near = nearest(name.removeprefix(VLLM), known)
            hint = f"did you mean `{near}`?" if near else f"`sample.vllm` has: {', '.join(sorted(known))}"
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
        near = nearest(value, choices)
        hint = f"did you mean `{near}`?" if near else f"one of {', '.join(choices)}"
        return [RecipeFinding(path, f"`{'.'.join(path)}` cannot be {shown(value)}", hint)]
    fits = any(isinstance(value, PYTHON[kind]) and (kind == "bool" or not isinstance(value, bool)) for kind in kinds)
    if fits and isinstance(value, float) and not math.isfinite(value):
        return [RecipeFinding(path, f"`{'.'.join(path)}` must be a finite number, got {shown(value)}")]
    if name.endswith(("_workers", "_num_proc")) and isinstance(value, int) and value > MOST_PROCESSES:
        return [RecipeFinding(path, f"`{'.'.join(path)}` is a number of processes: at most {MOST_PROCESSES:,}")]
    if fits:
        return []
    wanted = " or ".join(WORDS[kind] for kind in kinds)
    return [RecipeFinding(path, f"`{'.'.join(path)}` must be {wanted}{got_instead(path, value)}")]


def _section(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    here: Any = data
    for key in keys:
        here = here.get(key) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else {}
