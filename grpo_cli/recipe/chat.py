"""Options of the chat template, as a recipe gives them to all jobs."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_verifiers.strict_json import loads


def chat_options(recipe: Recipe) -> Mapping[str, object]:
    """What the chat template gets beside the messages: `model.template_args`, or TRL's name for them
    (`train.trl.chat_template_kwargs`)."""
    given = recipe.train.trl.get("chat_template_kwargs")
    if isinstance(given, str):
        try:
            given = loads(given)
        except ValueError as err:
            raise RecipeError(f"`train.trl.chat_template_kwargs` is no JSON: {err}") from err
    return {**(given if isinstance(given, Mapping) else {}), **recipe.model.template_args}
