"""The `train.trl` fields that add a term of its own to TRL's loss: one that every row has a part in, whatever its advantage.

Such a term forbids leaving rows out, and where it is a mean or a quantile over a micro-batch, dealing them out as one likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import RecipeError

if TYPE_CHECKING:
    from grpo_cli.recipe.arithmetic import Batching
    from grpo_cli.recipe.sections.recipe import Recipe

ROUTER = "router_aux_loss_coef"

NEUTRAL = {"entropy_coef": 0, "use_adaptive_entropy": False, "top_entropy_quantile": 1, ROUTER: 0}
"""What each of them says where it does nothing. Left out they are that, also the router's: a model's own coefficient
counts only where it is asked for with null."""

WHOLE_ONLY = ("use_adaptive_entropy", "top_entropy_quantile")
"""Exact only where a step is one micro-batch. The plain entropy bonus is made exact; the router's loss is by definition
one of the rows that go through the model together."""


def acts_on_every_row(trl: Mapping[str, Any]) -> list[str]:
    """Those that do something in this `train.trl`."""
    return [name for name, value in NEUTRAL.items() if _acts(name, trl.get(name, value), value)]


def whole_only(trl: Mapping[str, Any]) -> list[str]:
    """Those that do something there and want a step in one micro-batch."""
    return [name for name in acts_on_every_row(trl) if name in WHOLE_ONLY]


def refuse_parts(recipe: Recipe, batch: Batching, world: int) -> None:
    """What is exact only over a whole step is refused where that is in parts.

    Raises:
        RecipeError: a term that would be another one.
    """
    for name in whole_only(recipe.train.trl):
        if batch.accumulate > 1 or (world > 1 and recipe.train.trl.get("entropy_coef")):
            raise RecipeError(
                f"`train.trl.{name}` is taken over one micro-batch at a time, and a step is {batch.accumulate} of them on"
                f" each of {world} processes: it would train on something else than one",
                hint=f"leave `{name}` out, or run in one process with `sample.micro_batch` as large as a step",
            )


def _acts(name: str, said: Any, neutral: Any) -> bool:
    if said is None:
        return name == ROUTER
    return bool(said != neutral)
