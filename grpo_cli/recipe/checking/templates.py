"""Templates of `data` and `warmup` parsed before anything is read, so that a broken one is a recipe mistake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grpo_cli.data.rows import leaked_golds
from grpo_cli.data.template import Template, TemplateError, column_or_template, parse
from grpo_cli.recipe.checking.mistakes import RecipeFinding
from grpo_cli.recipe.paths import Path, dotted

LOOSE: tuple[Path, ...] = (("data", "system"), ("data", "prefill"))
"""Words to the model, in which braces that name no column stay."""


def check_templates(data: dict[str, Any]) -> list[RecipeFinding]:
    """One finding for each template that cannot be read."""
    found = []
    read: dict[Path, Template] = {}
    for path, text, bare in _templates(data):
        try:
            loose = path in LOOSE
            read[path] = column_or_template(text) if bare else parse(text, loose=loose)
        except TemplateError as err:
            near = "".join(c if c.isprintable() else "·" for c in text[err.at : err.at + 20])
            where = f", at `{near}`" if near else ""
            found.append(RecipeFinding(path, f"`{dotted(path)}`{where}: {err}"))
    gold = read.get(("data", "answer"))
    told = [(path, why) for path in LOOSE for why in leaked_golds(read.get(path), gold)]
    return found + [RecipeFinding(path, f"`{dotted(path)}` {why}") for path, why in told]


def _templates(data: dict[str, Any]) -> Iterator[tuple[Path, str, bool]]:
    rows = data.get("data")
    if isinstance(rows, dict):
        for key in ("system", "prompt", "prefill", "answer", "id"):
            if isinstance(rows.get(key), str):
                yield ("data", key), rows[key], key == "id"
        columns = rows.get("columns")
        for name, text in columns.items() if isinstance(columns, dict) else ():
            if isinstance(text, str):
                yield ("data", "columns", name), text, True
    for section in ("warmup", "sft"):
        yield from _shown(data.get(section), section)


def _shown(phases: Any, section: str) -> Iterator[tuple[Path, str, bool]]:
    for i, phase in enumerate(phases) if isinstance(phases, list) else ():
        shown = phase.get("demonstration") if isinstance(phase, dict) else None
        for j, one in enumerate(shown) if isinstance(shown, list) else ():
            if isinstance(one, dict) and isinstance(one.get("template"), str):
                yield (section, i, "demonstration", j, "template"), one["template"], False
