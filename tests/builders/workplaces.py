"""Small recipes on `builtin:tiny`, and a display that remembers what it was told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_cli.display.protocol import Display
from grpo_cli.recipe.sections.recipe import Recipe


class Told:
    """The display of a test: `notes` are the sentences, in order."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, level: str, text: str, hint: str = "") -> None:
        self.notes.append(text)

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        """Nothing."""

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Nothing."""

    @property
    def display(self) -> Display:
        return self  # type: ignore[return-value]


def tiny_recipe(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    held_out: Sequence[Mapping[str, Any]] | None = None,
    **sections: Any,
) -> Recipe:
    """A recipe whose rows have a `question`; `sections` stand over those written here."""
    data: dict[str, Any] = {"train": "train.jsonl", "prompt": "{question}"}
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if held_out is not None:
        (folder / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held_out))
        data["eval"] = "eval.jsonl"
    said: dict[str, Any] = {
        "model": "builtin:tiny",
        "data": data,
        "verify": {"regex": {"pattern": "[a-m]"}},
        "sample": {"prompts": 2, "group": 4, "max_tokens": 8},
        "train": {"steps": 2, "lr": 1e-3},
        "eval": {"samples": 2, "k": [1, 2]},
    }
    for name, keys in sections.items():
        said[name] = keys if name in ("verify", "model") else said.get(name, {}) | keys
    return Recipe.model_validate(said)
