"""JSON Schema of a recipe as people write it: short forms, verifier options by kind, TRL's free fields.

The models describe the widened form; here their schema is opened for what `shorthand` accepts. Keys that only an
overlay may leave out are required where `extends` is not said.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from pydantic import BaseModel, TypeAdapter

from grpo_cli.recipe.checking.other_names import ALWAYS, CHOICES, FIELDS, OURS
from grpo_cli.recipe.checking.rules import WHOLE
from grpo_cli.recipe.checking.values import VLLM, options_class
from grpo_cli.recipe.sections import recipe as models
from grpo_cli.recipe.sections.fields import field_docs
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.recipe.sections.rewards import KINDS
from grpo_verifiers import BadOption

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "list": "array",
    "dict": "object",
    "none": "null",
}
TEXT: Schema = {"type": "string"}
NOTHING: Schema = {"type": "null"}


def recipe_schema() -> Schema:
    """The schema, for editors and other programs."""
    schema = Recipe.model_json_schema(by_alias=True)
    defs = schema["$defs"]
    _describe(schema["properties"], Recipe)
    for name in defs:
        _describe(defs[name]["properties"], getattr(models, name))
    for name in ("Model", "Data", "Train", "Verify", "Shaping"):
        defs[name].pop("required", None)
    top = schema["properties"]
    source = {"anyOf": [TEXT, {"$ref": "#/$defs/Source"}]}
    phase, shown = {"$ref": "#/$defs/WarmupPhase"}, {"anyOf": [TEXT, {"$ref": "#/$defs/Demonstration"}]}
    _open(top, "model", TEXT, {"$ref": "#/$defs/Model"})
    for section in ("warmup", "sft"):
        _open(top, section, NOTHING, phase, {"type": "array", "items": phase})
    _open(top, "combine", NOTHING, defs["Combine"]["properties"]["method"], {"$ref": "#/$defs/Combine"})
    _open(defs["Environment"]["properties"], "harness", NOTHING, TEXT, {"$ref": "#/$defs/HarnessSpec"})
    data, warmup = defs["Data"]["properties"], defs["WarmupPhase"]["properties"]
    _open(data, "train", *source["anyOf"], {"type": "array", "items": source, "minItems": 1})
    _open(data, "eval", NOTHING, *source["anyOf"], {"type": "array", "items": source, "minItems": 1})
    for section in (warmup, defs["Prefer"]["properties"]):
        _open(section, "data", NOTHING, *source["anyOf"])
    _open(warmup, "demonstration", *shown["anyOf"], {"type": "array", "items": shown, "minItems": 1})
    _verifiers(schema["properties"], defs)
    stage = defs["Stage"]
    stage["properties"].pop("keys")
    shared = {key: value for key, value in schema["properties"].items() if key not in WHOLE}
    stage["properties"] = shared | stage["properties"]
    defs["Shaping"]["properties"].pop("options")
    defs["Shaping"]["additionalProperties"] = True
    free = {name: kind for name, kind in FIELDS.items() if name not in OURS | ALWAYS and not name.startswith(VLLM)}
    vllm = {name.removeprefix(VLLM): kind for name, kind in FIELDS.items() if name.startswith(VLLM)}
    _fields(defs["Train"]["properties"]["trl"], free)
    _fields(defs["Sample"]["properties"]["vllm"], vllm)
    whole = {
        "required": ["model", "data", "train"],
        "anyOf": [{"required": ["verify"]}, {"required": ["environment"]}],  # its outcome is a verdict
        "properties": {
            "data": {"required": ["train", "prompt"]},
            "train": {"oneOf": [{"required": ["steps"]}, {"required": ["epochs"]}]},
        },
    }
    out: Schema = {"$schema": DRAFT} | schema | {"title": "grpo recipe"} | {"anyOf": [{"required": ["extends"]}, whole]}
    out.pop("required", None)
    return out


def _describe(properties: Schema, model: type[BaseModel]) -> None:
    docs = field_docs(model)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if name in docs:
            properties[key] = {"description": docs[name]} | properties[key]


def _open(properties: Schema, name: str, *forms: Schema) -> None:
    kept = {key: properties[name][key] for key in ("description", "default") if key in properties[name]}
    properties[name] = kept | {"anyOf": list(forms)}


def _verifiers(top: Schema, defs: Schema) -> None:
    own = defs.pop("Verify")["properties"]
    own.pop("options")
    for kind in KINDS:
        try:
            options = options_class(kind)
        except BadOption as err:  # a package's own kind that cannot be loaded must not take the others away
            defs[f"verify_{kind}"] = {"type": "object", "description": str(err)}
            continue
        hints, shown = typing.get_type_hints(options), {}
        for field in dataclasses.fields(options):
            part = TypeAdapter(hints[field.name]).json_schema(ref_template=f"#/$defs/{kind}_{{model}}")
            defs |= {f"{kind}_{name}": inner for name, inner in part.pop("$defs", {}).items()}
            if isinstance(field.default, str | int | float | bool):
                part["default"] = field.default
            shown[field.name] = part
        defs[f"verify_{kind}"] = {
            "type": "object",
            "description": (options.__doc__ or "").strip().split("\n")[0],
            "properties": {**own, "kind": {"const": kind, "description": own["kind"]["description"]}, **shown},
            "additionalProperties": False,
        }
    named = [{"allOf": [{"$ref": f"#/$defs/verify_{kind}"}, {"required": ["kind"]}]} for kind in KINDS]
    short: list[Schema] = [{"enum": list(KINDS)}, *named]
    bare: list[Schema] = [NOTHING, {"type": "number"}]
    top["verify"] = {
        "type": "object",
        "description": top["verify"]["description"],
        "minProperties": 1,
        "properties": {kind: {"anyOf": [{"$ref": f"#/$defs/verify_{kind}"}, *bare, *short]} for kind in KINDS},
        "additionalProperties": {"anyOf": short},
    }
    if "python" in KINDS:
        top["verify"]["properties"]["python"]["anyOf"].append(TEXT)


def _fields(section: Schema, fields: dict[str, str]) -> None:
    properties: Schema = {}
    for name, kinds in fields.items():
        types = [TYPES[kind] for kind in kinds.split(" | ")]
        properties[name] = {"type": types[0] if len(types) == 1 else types}
        if name in CHOICES:
            properties[name]["enum"] = CHOICES[name]
    section |= {"properties": properties, "additionalProperties": False}
