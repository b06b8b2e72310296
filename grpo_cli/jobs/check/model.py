"""Whether the model can be loaded, as far as its files and the installed packages show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.check.layers import check_layers
from grpo_cli.policy.loading.files import base_files
from grpo_cli.policy.loading.inspection import flaws
from grpo_cli.recipe.sections.recipe import Recipe


def check_model(recipe: Recipe) -> Iterator[CheckFinding]:
    """One finding for each thing in the way, or one that says what was found and those of its layers."""
    is_sound = True
    critic = recipe.train.critic.model(recipe.model) if recipe.train.critic is not None else None
    for name, model in (("model", recipe.model), ("critic", critic)):
        for flaw in flaws(model) if model is not None else ():
            is_sound = False
            found = failed(name, flaw.error())
            yield found if flaw.is_fatal else replace(found, level=Level.WARN)
    if is_sound:
        yield CheckFinding("model", Level.OK, _found(recipe))
        yield from check_layers(recipe)


def _found(recipe: Recipe) -> str:
    config = base_files(recipe.model).json("config.json")
    kind = f", of the type `{config.get('model_type')}`" if config else ""
    code = (
        "; the code that comes with it (`auto_map`) is not run" if config and config.get("auto_map") else ""
    )
    return f"`{recipe.model.path}`{kind} can be loaded, as far as its files show{code}"
