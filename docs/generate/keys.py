"""Every key of a recipe with what it means, what it may be and what it is when left out; read from the schema."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from docs.generate.examples import example_of
from grpo_cli.recipe.schema import recipe_schema

Schema = dict[str, Any]
VERIFIER = "verify.NAME"
"""How the keys of a verifier are called that bears a name of its own."""
OF_ALL = ("kind", "weight", "primary", "right_at")
"""Keys that every verifier has; others are options of its kind."""
KINDS = {"object": "mapping", "boolean": "true | false", "array": "list"}
RANGE = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
NO_BOUND = 2**31 - 1
"""The `maximum` of every whole number, which tells a reader nothing."""


def key_paths() -> list[str]:
    """Every key by its path, in the order of the schema."""
    return list(_fields())


def describe(path: str) -> dict[str, Any]:
    """Path, meaning, values, default and an example of a key, and the keys inside it."""
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


def keys_file() -> str:
    """`grpo_cli/jobs/explain/keys.json`: what `grpo explain` prints of each key, by its path."""
    found = {path: describe(path) for path in key_paths()}
    for said in found.values():
        said.pop("key")
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


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
        is_taken = path == "stages." and (name == "verify" or name in found)  # the recipe's, which a stage takes too
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
    bounds = " and ".join(f"{sign} {form[key]:g}" for key, sign in RANGE.items() if form.get(key, NO_BOUND) != NO_BOUND)
    kinds = form.get("type", [])
    words = [KINDS.get(k, k) for k in ([kinds] if isinstance(kinds, str) else kinds) if k != "null"]
    return f"{' | '.join(words)} {bounds}".strip()
