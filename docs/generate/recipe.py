"""Pages of the keys of a recipe: meaning, values, default and an example of each, as `grpo explain KEY` says them."""

from __future__ import annotations

import json
from typing import Any

from docs.generate.keys import VERIFIER, describe, key_paths
from docs.generate.markdown import code, code_cell, fenced, head, table

OF_TRL = ("train.trl.", "sample.vllm.")
RECIPE = """\
Every key, section by section in the order of the flow. `grpo explain KEY` says the same on the command line, `grpo schema` prints
it as JSON Schema, and [recipe files](../recipe.md) has templates, filters and overlays. Every example is valid on top of
the shipped recipe `quickstart` (`extends: quickstart`), with the keys that it needs beside it. A key that is left out has its
default. `train.trl` and `sample.vllm` take [fields of TRL](trl.md), `verify` the options of each [kind of verifier](verifiers.md)."""
TRL = """\
`train.trl` takes any field of TRL's `GRPOConfig` that `grpo` does not own, `sample.vllm` those that TRL gives to vLLM. Names,
types and choices are those of the TRL that `grpo` was made for; its own pages say what each means. A field that a key of the
recipe owns is refused, and the mistake names the key."""


def recipe_page() -> str:
    """`reference/recipe.md`."""
    paths = [path for path in key_paths() if not path.startswith(OF_TRL)]
    parts = [head("Recipe keys", RECIPE)]
    for section in dict.fromkeys(path.split(".")[0] for path in paths):
        parts += [f"## `{section}`\n", *_own(describe(section))]
        for path in paths:
            if path.startswith(f"{section}."):
                parts += [f"### `{path}`\n", *_own(describe(path))]
    return "\n".join(parts)


def trl_page() -> str:
    """`reference/trl.md`."""
    parts = [head("Fields of TRL", TRL)]
    for start in OF_TRL:
        found = [describe(path) for path in key_paths() if path.startswith(start)]
        rows = [tuple(code_cell(one[part]) for part in ("key", "values", "example")) for one in found]
        parts += [f"## `{start.removesuffix('.')}`\n", table(("key", "values", "example"), rows)]
    return "\n".join(parts)


def _own(said: dict[str, Any]) -> list[str]:
    facts = [f"Values: {code(said['values'])}."] if said["values"] else []
    if said["default"] is not None and not said["keys"]:
        facts.append(f"Default: {code(json.dumps(said['default'], ensure_ascii=False))}.")
    if said["key"] == VERIFIER.partition(".")[0]:
        facts = ["Values: a mapping of names to [verifiers](verifiers.md), or one of them."]
    return [f"{part}\n" for part in (said["summary"], " ".join(facts)) if part] + [fenced(said["example"], "yaml")]
