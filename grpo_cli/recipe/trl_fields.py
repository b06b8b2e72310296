"""`train.trl` checked against the fields of TRL's GRPOConfig, without importing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_cli.recipe.mistakes import Finding


def check_trl(data: dict[str, Any], is_said: Callable[[tuple[str | int, ...]], bool]) -> list[Finding]:
    """What is wrong with `train.trl`."""
    return []
