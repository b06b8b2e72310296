"""`grpo train --dry-run`: what would be trained, from the recipe and its rows alone."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.data.audit import audit_golds
from grpo_cli.data.rows import load_rows
from grpo_cli.recipe.arithmetic import plan
from grpo_cli.recipe.checking.strategy import STRATEGIES
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.judge import Judge


def plan_lines(recipe: Recipe, base: Path) -> list[str]:
    """The recipe, its batch arithmetic and how many rows a bad gold drops; nothing is written and torch is not loaded.

    Raises:
        RecipeError, DataError, SetupError: as `grpo train` before it loads a model.
    """
    judge = Judge.of(recipe, base)
    try:
        judge.start()
        rows = load_rows(recipe.data, "train", base)
        audit = audit_golds(rows, judge.verifiers, recipe.data.on_bad_gold, judge.rule)
    finally:
        judge.close()
    arithmetic = plan(recipe, len(audit.rows)).text()
    lines = [to_yaml(recipe), arithmetic]
    if recipe.launch.strategy != "ddp":
        lines.append(f"{recipe.launch.strategy}: {STRATEGIES[recipe.launch.strategy]}")
    if audit.dropped:
        lines.append(f"{len(audit.dropped)} of {len(rows)} rows dropped for a bad gold")
    return lines
