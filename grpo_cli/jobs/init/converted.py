"""A recipe that another trainer's configuration becomes, and what of that is still to be dealt with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Config = dict[str, Any]


@dataclass
class ConvertedRecipe:
    """A recipe as nested mappings, and `(name, value, why)` of all that is not in it."""

    recipe: Config = field(default_factory=dict)
    left: list[tuple[str, object, str]] = field(default_factory=list)

    def put(self, path: str, value: object) -> None:
        """Say the key at a dotted path."""
        *above, last = path.split(".")
        inner = self.recipe
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value


def take(rest: Config, *names: str) -> Any:
    """The value of the first of these names, all of which are dealt with then."""
    found = [rest.pop(name) for name in names if name in rest]
    return found[0] if found else None
