"""Every key of a recipe with what it means, what it may be and what it is when left out; read from the schema."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from functools import cache
from typing import Any

from grpo_cli.jobs.explain.examples import example_of
from grpo_cli.recipe.schema import recipe_schema

Schema = dict[str, Any]
VERIFIER = "verify.NAME"
"""How the keys of a verifier are called that bears a name of its own."""
OF_ALL = ("kind", "weight", "primary", "right_at")
"""Keys that every verifier has; others are options of its kind."""
WIDTH = 100
KINDS = {"object": "mapping", "boolean": "true | false", "array": "list"}
RANGE = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
NO_BOUND = 2**31 - 1
"""The `maximum` of every whole number, which tells a reader nothing."""


@cache
def key_names() -> dict[str, str]:
    """What a key can be called by: its path, and its last part where no other key ends in that."""
    paths = key_paths()
    ends = Counter(path.rsplit(".", 1)[-1] for path in paths)
    short = {path.rsplit(".", 1)[-1]: path for path in paths}
    return {name: path for name, path in short.items() if ends[name] == 1} | {path: path for path in paths}


def key_paths() -> list[str]:
    """Every key by its path, in the order of the schema."""
    return list(_fields())


def describe(name: str) -> dict[str, Any]:
    """Path, meaning, values, default and an example of a key, and the keys inside it."""
    path = key_names()[name]
    field = _fields()[path]
    inside = {p: f for p, f in _fields().items() if p.rpartition(".")[0].removesuffix(".NAME") == path}
    about = [field.get("description", ""), *(form.get("description", "") for form in _forms(field))]
    return {
        "key": path,
        "summary": " ".join(dict.fromkeys(text for text in about if text)),
        "values": " | ".join(dict.fromkeys(_value(form) for form in _forms(field))),
        "default": field.get("default"),
        "example": example_of(path, next(iter(_forms(field)), {}), field.get("default")),
        "keys": {p: f.get("description", "") for p, f in inside.items()},
    }


def render(described: dict[str, Any]) -> str:
    """The text form of `describe`."""
    lines = [described["key"], "", *textwrap.wrap(described["summary"], WIDTH), ""]
    if described["values"]:
        lines += textwrap.wrap(
            described["values"], WIDTH, initial_indent="values   ", subsequent_indent=" " * 9
        )
    if described["default"] is not None and not described["keys"]:
        lines.append(f"default  {json.dumps(described['default'])}")
    lines += textwrap.indent(described["example"], " " * 9).replace(" " * 9, "example  ", 1).splitlines()
    for path, about in described["keys"].items():
        lines += textwrap.wrap(f"{path}  {about}", WIDTH, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines).rstrip()


@cache
def _schema() -> Schema:
    return recipe_schema()


@cache
def _fields() -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    _walk(_schema(), "", found)
    return found


def _walk(schema: Schema, path: str, found: dict[str, Schema]) -> None:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}{name}"
        is_taken = path == "stages." and (
            name == "verify" or name in found
        )  # the recipe's, which a stage takes too
        if is_taken:
            continue
        if here == "verify":  # options are those of a kind: `grpo explain math`
            found[here] = {key: field[key] for key in ("description", "type")}
            kinds = _schema()["$defs"]["verify_math"]["properties"]
            found |= {f"{VERIFIER}.{key}": kinds[key] for key in OF_ALL}
            continue
        found.setdefault(here, field)
        for form in _forms(field):
            inner = _forms(form["items"]) if "items" in form else [form]
            for one in inner:
                _walk(one, f"{here}.", found)


def _forms(field: Schema) -> list[Schema]:
    """The alternatives a field may have, `null` left out, with references followed."""
    if "$ref" in field:
        return _forms(_schema()["$defs"][field["$ref"].rsplit("/", 1)[-1]])
    if "anyOf" in field or "oneOf" in field:
        every = [form for one in field.get("anyOf") or field["oneOf"] for form in _forms(one)]
        return [form for form in every if form.get("type") != "null"]
    return [field]


def _value(form: Schema) -> str:
    if "const" in form:
        return str(form["const"])
    if "enum" in form:
        return " | ".join(str(value) for value in form["enum"])
    if form.get("type") == "array":
        items = " | ".join(dict.fromkeys(_value(one) for one in _forms(form.get("items", {}))))
        return f"list of {items}" if items else "list"
    bounds = " and ".join(
        f"{sign} {form[key]:g}" for key, sign in RANGE.items() if form.get(key, NO_BOUND) != NO_BOUND
    )
    kinds = form.get("type", [])
    words = [KINDS.get(k, k) for k in ([kinds] if isinstance(kinds, str) else kinds) if k != "null"]
    return f"{' | '.join(words)} {bounds}".strip()
