"""A recipe as YAML text that loads back to an equal recipe."""

from __future__ import annotations

from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from grpo_cli.recipe.models import Recipe


def to_yaml(recipe: Recipe) -> str:
    """Every field but `extends`; verifier options stand beside the verifier's own keys."""
    data = plain(recipe)
    out = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 4096
    yaml.allow_unicode = True
    yaml.dump(data, out)
    return out.getvalue()


def plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as the mapping a user would write, everything said."""
    data: dict[str, Any] = recipe.model_dump(by_alias=True, mode="json")
    data.pop("extends")
    for section in ("verify", "shaping"):
        for one in data[section].values():
            one |= one.pop("options")
    return data
