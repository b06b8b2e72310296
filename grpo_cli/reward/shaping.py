"""The shaping terms of a recipe: small rewards for form, added to what the verifiers pay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from grpo_cli.errors import RecipeError
from grpo_verifiers.shaping import Shaped, build_term
from grpo_verifiers.verifier import BadOption

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe

Terms = dict[str, tuple[float, Callable[[Shaped], float]]]


@dataclass(frozen=True, slots=True)
class ShapingEntry:
    """One shaping term: its options, its weight, and which answers it is paid for: all, or the right ones."""

    options: Mapping[str, Any]
    weight: float = 1.0
    only: Literal["right"] | None = None


def shaping_entries(recipe: Recipe) -> dict[str, ShapingEntry]:
    """The terms of a recipe by name; `train.overlong` is one of weight 1.

    Raises:
        RecipeError: `overlong` is asked for in both places.
    """
    entries = {
        str(name): ShapingEntry(dict(one.options), one.weight, one.only)
        for name, one in recipe.shaping.items()
    }
    if not recipe.train.overlong:
        return entries
    if "overlong" in entries:
        raise RecipeError(
            f"`train.overlong` ({recipe.train.overlong:g}) is a penalty for long answers too",
            place="`shaping.overlong`",
            hint="leave one out: `shaping.overlong`, or `train.overlong: null`",
        )
    return {"overlong": ShapingEntry({"cache": recipe.train.overlong}), **entries}


def build_terms(entries: Mapping[str, ShapingEntry], place: str = "`shaping.{}`") -> Terms:
    """Weight and function of each term; `place` says where it stands, `{}` for its name.

    Raises:
        RecipeError: an option that the term does not have, or a value that cannot be meant.
    """
    terms: Terms = {}
    for name, entry in entries.items():
        try:
            terms[name] = (entry.weight, build_term(name, only=entry.only, **entry.options))
        except BadOption as err:
            raise RecipeError(str(err), place=place.format(name)) from err
    return terms
