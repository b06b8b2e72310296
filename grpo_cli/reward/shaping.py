"""The shaping terms of a recipe: small rewards for form, added to what the verifiers pay."""

from __future__ import annotations

from collections.abc import Callable

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_verifiers.shaping import Shaped, build_term
from grpo_verifiers.verifier import BadOption

Terms = dict[str, tuple[float, Callable[[Shaped], float]]]


def shaping_terms(recipe: Recipe) -> Terms:
    """Weight and function of each shaping term; `train.overlong` is one of weight 1.

    Raises:
        RecipeError: an option that the term does not have.
    """
    terms: Terms = {}
    if recipe.train.overlong:
        terms["overlong"] = (1.0, build_term("overlong", cache=recipe.train.overlong))
    for name, spec in recipe.shaping.items():
        try:
            terms[name] = (spec.weight, build_term(name, **spec.options))
        except BadOption as err:
            raise RecipeError(str(err), place=f"`shaping.{name}`") from err
    return terms
