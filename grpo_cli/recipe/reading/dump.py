"""A recipe as YAML text that loads back to an equal recipe."""

from __future__ import annotations

import hashlib
from io import StringIO
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from grpo_cli.recipe.reading.escapes import eaten_commands, spelled_out
from grpo_cli.recipe.sections.fields import Placed, written
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.typed import recipe_of_text


class _Representer(SafeRepresenter):
    """Text with line breaks that only YAML 1.1 knows is escaped; the plain writer would turn them into `\\n`."""

    def represent_str(self, data: str) -> Any:
        style = '"' if any(c in data for c in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def to_yaml(recipe: Recipe) -> str:
    """YAML of everything, defaults and presets written out; loading it gives an equal recipe.

    Every field but `extends` is said (and an environment's `role`, where it is that of tools); verifier options stand beside the verifier's own keys.
    """
    return _text_of(plain(recipe))


def _text_of(data: dict[str, Any]) -> str:
    out = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 4096
    yaml.allow_unicode = True
    yaml.dump(data, out)
    text = out.getvalue()
    return spelled_out(text) if any(eaten_commands(text)) else text


def as_written_now(text: str) -> str:
    """A resolved recipe with the keys that came after it was written, at their defaults; unchanged if it no longer loads.

    Raises:
        ValueError: it is no recipe at all.
    """
    data = recipe_of_text(text)
    filled = filled_up(data)
    return text if filled is data else _text_of(filled)


def filled_up(data: dict[str, Any]) -> dict[str, Any]:
    """The same of a mapping."""
    try:
        return plain(Recipe.model_validate(data))
    except ValidationError:
        return data


def recipe_sha(recipe: Recipe) -> str:
    """SHA-256 of the text, in hexadecimal digits: two recipes that mean the same have the same."""
    return hashlib.sha256(to_yaml(recipe).encode()).hexdigest()


def plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as the mapping a user would write, everything said but the role of an environment whose calls fill it."""
    data: dict[str, Any] = recipe.model_dump(by_alias=True, mode="json")
    data.pop("extends")
    if recipe.environment is not None and recipe.environment.has_calls:
        data["environment"].pop("role")
    for name, spec in recipe.verify.items():
        data["verify"][name]["options"] |= {
            key: written(value) for key, value in spec.options.items() if isinstance(value, Placed)
        }
    for section in ("verify", "shaping"):
        for one in data[section].values():
            one |= one.pop("options")
    for stage in data["stages"] or ():
        stage |= stage.pop("keys")
    return data
