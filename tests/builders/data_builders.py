"""Recipes' data sections with defaults, and files to read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from grpo_cli.data.rows import Row


@dataclass(frozen=True)
class Source:
    source: str
    limit: int | None = None
    skip: int = 0
    weight: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Data:
    train: list[Source]
    eval: Source | list[Source] | None = None
    system: str | None = None
    prompt: str = "{question}"
    answer: str | None = None
    id: str | None = None
    plain: bool = False
    images: str | list[str] | None = None
    prefill: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    on_null: Literal["error", "drop"] = "error"


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def question(n: int = 1, /, **more: Any) -> dict[str, Any]:
    return {"question": f"what is {n}+{n}?", "answer": str(n + n), **more}


def row(text: str, **fields: Any) -> Row:
    """A row of one question, named by it."""
    return Row(text, text, [{"role": "user", "content": text}], fields, f"a.jsonl:{text}")
