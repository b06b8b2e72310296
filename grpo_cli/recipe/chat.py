"""Options of the chat template, as a recipe gives them to all jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from grpo_cli.recipe.sections.recipe import Recipe


def chat_options(recipe: Recipe) -> Mapping[str, object]:
    """What the chat template gets beside the messages: `model.template_args`, or TRL's name for them
    (`train.trl.chat_template_kwargs`)."""
    given = recipe.train.trl.get("chat_template_kwargs")
    if isinstance(given, str):
        given = json.loads(given)
    return {**(given if isinstance(given, Mapping) else {}), **recipe.model.template_args}
