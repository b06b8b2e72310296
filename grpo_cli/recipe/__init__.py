"""What a recipe may say: YAML and `--set` to a checked `Recipe`, with the place of every mistake. No torch in here."""

from grpo_cli.recipe.arithmetic import BatchPlan, plan
from grpo_cli.recipe.reading.load import find, load, shipped_recipes
from grpo_cli.recipe.sections.recipe import (
    Combine,
    Data,
    Eval,
    Gate,
    Launch,
    Lora,
    Model,
    Recipe,
    Run,
    Sample,
    Shaping,
    Source,
    Stop,
    Train,
    Verify,
    WarmupPhase,
)

__all__ = [
    "BatchPlan",
    "Combine",
    "Data",
    "Eval",
    "Gate",
    "Launch",
    "Lora",
    "Model",
    "Recipe",
    "Run",
    "Sample",
    "Shaping",
    "Source",
    "Stop",
    "Train",
    "Verify",
    "WarmupPhase",
    "find",
    "load",
    "plan",
    "shipped_recipes",
]
