"""The page of all verifiers: what each reads, its options, and its examples judged as the page is written."""

from __future__ import annotations

import json
from typing import Any

from docs.generate.markdown import cell, code, code_cell, head, table
from grpo_cli.jobs.explain.subjects import describe_verifier as describe
from grpo_cli.jobs.explain.subjects import in_words
from grpo_verifiers.registry import KINDS

ABOUT = """\
Every kind that `verify` may name, with the columns it reads, its options and its examples, as `grpo explain KIND` says them. The
[guide](../verifiers/README.md) says what they have in common: outcomes, several at once, functions of your own. `weight`,
`primary` and `right_at` are keys of [every verifier](recipe.md#verify). The verdicts of the examples were given as this page was
written."""


def verifiers_page() -> str:
    """`reference/verifiers.md`."""
    kinds = sorted({*KINDS, "reward_model"})
    return "\n".join([head("Verifiers by kind", ABOUT), *(part for kind in kinds for part in _kind(describe(kind)))])


def _kind(said: dict[str, Any]) -> list[str]:
    parts = [f"## `{said['kind']}`\n", f"{said['summary']}\n"]
    if said["columns"]:
        parts.append(f"Reads: {', '.join(code(name) for name in said['columns'])}.\n")
    if said["options"]:
        rows = [
            (code_cell(one["name"]), code_cell(in_words(one["type"])), _default(one["default"]), cell(one["about"]))
            for one in said["options"]
        ]
        parts.append(table(("option", "values", "default", "means"), rows))
    if said["examples"]:
        parts.append(
            table(("verdict", "reason", "gold", "completion", "options", "shows"), map(_example, said["examples"]))
        )
    return parts


def _default(value: object) -> str:
    return "" if value is None else code_cell(json.dumps(value, ensure_ascii=False, default=str))


def _example(one: dict[str, Any]) -> tuple[str, ...]:
    options = ", ".join(f"{name}: {value}" for name, value in one["options"].items())
    gold = one["row"].get("answer", "")
    return (
        str(one["outcome"]).replace("_", " ") if one["outcome"] else "—",
        code_cell(one["reason"]),
        code_cell(gold),
        code_cell(one["completion"]),
        code_cell(options),
        cell(one["shows"]),
    )
