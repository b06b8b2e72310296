"""What `grpo init --from` writes and prints."""

from __future__ import annotations

from io import StringIO

from grpo_cli.jobs.init.configs import ConvertedRecipe

ORDER = ("grpo", "model", "data", "sample", "verify", "train", "eval", "run")


def as_yaml(made: ConvertedRecipe, source: str) -> str:
    """The recipe file, with what has no counterpart in comments above it."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 110
    recipe = {"grpo": 1} | made.recipe
    written = StringIO()
    yaml.dump({key: recipe[key] for key in ORDER if key in recipe}, written)
    head = [f"# From {source}. One process is taken for granted: more share the same steps out (`launch.gpus`)."]
    head += [f"#   not here: {line}" for line in _lines(made)]
    return "\n".join([*head, written.getvalue()])


def listed(made: ConvertedRecipe) -> list[str]:
    """The same list for the screen."""
    lines = _lines(made)
    return [f"{len(lines)} without a counterpart:", *(f"  {line}" for line in lines)] if lines else []


def _lines(made: ConvertedRecipe) -> list[str]:
    return [f"{name}: {value} ({why})" if value is not None else f"{name} ({why})" for name, value, why in made.left]
