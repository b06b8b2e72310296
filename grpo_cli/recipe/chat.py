"""Options of the chat template, as a recipe gives them to training; every other job takes them from here too."""

from __future__ import annotations

import json
from collections.abc import Mapping

from grpo_cli.recipe.sections.recipe import Recipe


def chat_options(recipe: Recipe) -> Mapping[str, object]:
    """What training hands to the chat template beside the messages (`train.trl.chat_template_kwargs`)."""
    given = recipe.train.trl.get("chat_template_kwargs")
    if isinstance(given, str):
        given = json.loads(given)
    return given if isinstance(given, Mapping) else {}
