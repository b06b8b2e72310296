"""The section `stages`: a chain of runs in one recipe."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from grpo_cli.recipe.sections.fields import Section, Words


class Stage(Section):
    """One run of a chain. Every other key is one of the recipe's, for this stage."""

    name: Words
    """Part of the stage's folder, and what later stages call its samples: `run:NAME`."""
    start: Literal["best", "last", "base"] = Field(default="best", alias="from")
    """Weights it starts from: the last stage's best checkpoint on held-out rows, its last one, or the recipe's model and warm-up."""
    keys: dict[str, Any] = Field(default_factory=dict)
    """Keys of the recipe that are this stage's own."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        own = {key: inner for key, inner in value.items() if key in ("name", "from", "start", "keys")}
        rest = {key: inner for key, inner in value.items() if key not in own}
        return own | {"keys": {**own.get("keys", {}), **rest}} if rest else own
