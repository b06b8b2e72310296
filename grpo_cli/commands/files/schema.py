"""`grpo schema`: the JSON Schema of a recipe on stdout."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of a recipe.

    For completion in an editor, write it to a file and name that in the recipe's first line:

        grpo schema > grpo.schema.json

        # yaml-language-server: $schema=grpo.schema.json
    """
    import json

    from grpo_cli.recipe.schema import recipe_schema

    print(json.dumps(recipe_schema(), indent=2, ensure_ascii=False))
