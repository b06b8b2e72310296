"""JSON Schema: what is wrong with one, and the work of a pool that checks values against it.

A schema may hold patterns that backtrack for ever on the wrong text, so it is only ever applied in a killable worker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from grpo_verifiers.kinds.json_parts.json_text import parse


def schema_problem(schema: object) -> str:
    """What is wrong with a schema, in words; empty where nothing is."""
    if not isinstance(schema, dict | bool):
        return "the schema is no object"
    try:
        import jsonschema
    except ModuleNotFoundError:
        return "checking a schema needs the package jsonschema"
    for target in _references(schema):
        if not target.startswith("#"):
            return "the schema refers to another document; only `#…` references are followed"
        if target.startswith("#/") and not _points_somewhere(schema, target):
            return f"the schema has nothing at `{target}`"
    try:
        jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator).check_schema(schema)
    except jsonschema.SchemaError as err:
        where = "/".join(map(str, err.absolute_path)) or "its top"
        return f"the schema is not valid at {where}: {err.message[:200]}"
    return ""


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for inner in schema.values():
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def _points_somewhere(schema: object, pointer: str) -> bool:
    for part in pointer[2:].split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and name.isdigit() and int(name) < len(schema):
            schema = schema[int(name)]
        elif isinstance(schema, dict) and name in schema:
            schema = schema[name]
        else:
            return False
    return True


def serve(config: None) -> tuple[Callable[[tuple[dict[str, Any], str]], str | None], None]:
    """The pool's task: the first violation of a schema, in words, or None."""
    import jsonschema

    known: dict[str, Any] = {}

    def work(item: tuple[dict[str, Any], str]) -> str | None:
        schema, text = item
        key = json.dumps(schema, sort_keys=True)
        if key not in known:
            kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
            known[key] = kind(schema)
        first = next(iter(known[key].iter_errors(parse(text))), None)
        if first is None:
            return None
        where = "/".join(map(str, first.absolute_path))
        return f"{where or 'the value'}: {first.message}"[:300]

    return work, None
