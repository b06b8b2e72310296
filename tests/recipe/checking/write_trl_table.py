"""Writes `grpo_cli/recipe/checking/trl_table.py` from the installed TRL: `make trl-table` after its version was raised."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import types
import typing
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parents[3] / "grpo_cli" / "recipe" / "checking" / "trl_table.py"


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

    return {
        "lr_scheduler_type": [c.value for c in SchedulerType],
        "optim": [c.value for c in OptimizerNames],
    }


def text() -> str:
    """The whole module, as ruff formats it."""
    major, minor, *_ = version("trl").split(".")
    said = (
        f'"""Fields of TRL {major}.{minor}\'s GRPOConfig with the kinds of value each takes; `make trl-table` writes it."""\n\n'
        f"FIELDS: dict[str, str] = {real_table()!r}\n"
        f"CHOICES: dict[str, list[str]] = {real_choices()!r}\n"
    )
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TABLE), "-"]
    return subprocess.run(command, input=said, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    TABLE.write_text(text())
