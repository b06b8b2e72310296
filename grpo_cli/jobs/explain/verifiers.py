"""A verifier described from its class, with its own examples judged now, for `grpo explain`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import textwrap
import typing
from contextlib import ExitStack
from typing import Any

from grpo_cli.errors import SetupError
from grpo_cli.recipe.sections.rewards import kind_class
from grpo_verifiers import BadGold, BadOption, Unavailable, build

WIDTH = 100
WORDS = {"str": "text", "int": "integer", "float": "number", "bool": "true | false"}


def describe(kind: str) -> dict[str, Any]:
    """Summary, columns, options and examples of a verifier, from its class; those that this machine cannot judge have the reason."""
    try:
        cls = kind_class(kind)
    except BadOption as err:
        raise SetupError(str(err), hint="mend or remove the package that brings it") from err
    columns = cls.columns if isinstance(cls.columns, tuple) else ()
    examples: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for one in getattr(cls, "examples", list)():
            options = one.options or {}
            line = {"row": one.row, "completion": one.completion, "options": options, "shows": one.why}
            try:
                verifier = build(kind, **options)
                stack.callback(verifier.close)
                verdict = verifier.verify(one.completion, one.row)
                line |= {"outcome": verdict.outcome.value, "score": verdict.score, "reason": verdict.reason}
            except (BadGold, BadOption, Unavailable) as err:
                line |= {"outcome": None, "score": None, "reason": str(err)}
            examples.append(line)
    return {
        "kind": kind,
        "summary": " ".join((cls.__doc__ or "").split()),
        "columns": list(columns),
        "options": options_of(cls.Options),
        "examples": examples,
    }


def options_of(options: type) -> list[dict[str, Any]]:
    """Every option with its type, default and the text that stands below it in the source."""
    documented: dict[str, str] = {}
    tree = ast.parse(textwrap.dedent(inspect.getsource(options)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                documented[field.target.id] = " ".join(value.value.split())
    out = []
    for f in dataclasses.fields(options):
        if f.default is not dataclasses.MISSING:
            default = f.default
        else:
            default = f.default_factory() if f.default_factory is not dataclasses.MISSING else None
        kind = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", str(f.type))
        if kind.isidentifier() and kind not in WORDS:  # an alias, whose name says nothing to a user
            kind = str(typing.get_type_hints(options)[f.name]).replace("typing.", "")
        out.append({"name": f.name, "type": kind, "default": default, "about": documented.get(f.name, "")})
    return out


def render(described: dict[str, Any]) -> str:
    """The text form of `describe`."""
    lines = [f"{described['kind']}: {described['summary']}"]
    if described["columns"]:
        lines += ["", f"reads      {', '.join(described['columns'])}"]
    lines += ["", "options"]
    for option in described["options"]:
        default = "" if option["default"] is None else f", default {json.dumps(option['default'], default=str)}"
        lines.append(f"  {option['name']}: {in_words(option['type'])}{default}")
        lines += wrapped(option["about"], "      ")
    if described["examples"]:
        lines += ["", "examples, judged now"]
        lines += table(described["examples"])
    return "\n".join(lines)


def in_words(kind: str) -> str:
    """A type of Python in the words of a recipe's values: `'a' | 'b'`, `text`, `list of number`."""
    words = re.sub(r"Literal\[([^\]]*)\]", lambda found: found[1].replace("'", "").replace(", ", " | "), kind)
    words = re.sub(r"\s*\|\s*None\b", "", words)
    words = re.sub(r"dict\[[^\]]*\]", "mapping", words)
    words = re.sub(r"list\[(\w+)\]", r"list of \1", words)
    return re.sub(r"\b(str|int|float|bool)\b", lambda found: WORDS[found[1]], words)


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of a paragraph."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def table(examples: list[dict[str, Any]]) -> list[str]:
    """Outcome, reason, gold and completion of every example, and what it shows."""
    rows = []
    for one in examples:
        gold = one["row"].get("answer", "")
        options = " ".join(f"[{k}: {v}]" for k, v in one["options"].items())
        rows.append(
            (
                "right" if one["outcome"] == "right" else str(one["outcome"] or "—"),
                one["reason"],
                cut(str(gold), 24),
                cut(one["completion"], 40),
                f"{one['shows']} {options}".rstrip(),
            )
        )
    heads = ("verdict", "reason", "gold", "completion", "shows")
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(4)]
    return [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in [heads, *rows]
    ]


def cut(text: str, most: int) -> str:
    """One line of at most `most` characters."""
    text = text.replace("\n", "⏎")
    return text if len(text) <= most else text[: most - 1] + "…"
