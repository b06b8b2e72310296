"""Writes `grpo_cli/recipe/checking/trl_fields.json` from the installed TRL: `make trl-table` after its version was raised."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parents[3] / "grpo_cli" / "recipe" / "checking" / "trl_fields.json"


def kinds(hint: Any) -> set[str]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return set().union(*(kinds(arg) for arg in args))
    if origin is typing.Literal:
        return set().union(*(kinds(type(arg)) for arg in args))
    bare = origin or hint
    if bare is type(None):
        return {"none"}
    if isinstance(bare, type) and issubclass(bare, Enum):
        return {"str"}
    return {bare.__name__} if bare in (int, float, bool, str, list, dict) else set()


def real_table() -> dict[str, str]:
    from trl import GRPOConfig

    fields = dataclasses.fields(GRPOConfig)
    return {f.name: " | ".join(sorted(kinds(f.type))) for f in fields}


def real_choices() -> dict[str, list[str]]:
    from transformers.trainer_utils import SchedulerType
    from transformers.training_args import OptimizerNames

    return {"lr_scheduler_type": [c.value for c in SchedulerType], "optim": [c.value for c in OptimizerNames]}


def text() -> str:
    """The whole file."""
    return json.dumps({"fields": real_table(), "choices": real_choices()}, indent=1) + "\n"


if __name__ == "__main__":
    TABLE.write_text(text())
