"""Weights kept in few bits, and a rate too small to move them: an update below half the spacing of numbers is rounded away."""

from __future__ import annotations

import math

from grpo_cli.recipe.sections.recipe import Recipe

BITS = {"bfloat16": 8, "float16": 11}
"""Of the significand, the implied one included: a number's neighbours are its size times 2^(1 - bits) away, or half that."""
SPREAD = 0.02
"""Standard deviation that weights are taken to have: what most models start their matrices with."""
FEW = 0.5
HINT = (
    "leave `model.dtype` out (weights in float32, products in bfloat16 where that pays), train adapters (`model.lora`),"
    " or raise `train.lr`"
)


def moving_share(dtype: str, rate: float) -> float:
    """About how many of the weights a step of Adam can move, which changes each by about the rate; 1 where bits suffice."""
    if dtype not in BITS:
        return 1.0
    largest = rate * 2 ** (BITS[dtype] + 1)
    return math.erf(largest / (SPREAD * math.sqrt(2)))


def stuck_weights(recipe: Recipe, *, adapter: bool) -> str | None:
    """What to say where most weights cannot move; None where they can, or only an adapter is trained."""
    if adapter or recipe.model.lora is not None:
        return None
    dtype, rate = recipe.model.dtype, recipe.train.lr
    share = moving_share(dtype, rate)
    if share >= FEW:
        return None
    return (
        f"weights in {dtype} and a rate of {rate:g}: a step moves about {share:.0%} of them, the rest is rounded back"
        f" (a weight must be smaller than {rate * 2 ** (BITS[dtype] + 1):.1g})"
    )
