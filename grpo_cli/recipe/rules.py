"""Rules between fields, each with the reason and a way out."""

from __future__ import annotations

from grpo_cli.recipe.mistakes import Finding
from grpo_cli.recipe.models import Recipe


def check_rules(recipe: Recipe) -> list[Finding]:
    """What single fields allow and together cannot be meant."""
    return []
