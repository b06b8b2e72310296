"""What lies in memory between two steps: weights, gradients, optimizer, copies. Bytes of one process."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_cli.policy.loading.adapter import saved_rank
from grpo_cli.policy.loading.sizes import ModelSizes, local_sizes
from grpo_cli.recipe.checking.strategy import splits_parameters
from grpo_cli.recipe.sections.recipe import Model, Recipe

ADAM = 4
"""Numbers of a trained parameter: weight, gradient, two moments."""
WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
HALF = 2
"""Bytes of a number in half precision."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What is trained of a model: `parameters` of `width` bytes each, beside `frozen` bytes that are not."""

    parameters: int
    width: int
    frozen: int
    rank: int | None
    is_half: bool
    """Whether the weights lie in half precision; else products run in it by an autocast."""

    @property
    def optimized(self) -> int:
        """Bytes of weights, gradients and Adam's moments, those of the frozen weights too."""
        return self.frozen + self.parameters * self.width * ADAM


def adapter_rank(model: Model) -> int | None:
    """The rank of the adapter that is trained; None where all weights are."""
    return model.lora.r if model.lora is not None else saved_rank(model)


def base_width(model: Model) -> float:
    """Bytes of a frozen weight under an adapter."""
    return 0.5 if model.load_in_4bit else WIDTHS["bfloat16" if model.dtype == "auto" else model.dtype]


def trained(model: Model, sizes: ModelSizes) -> Trained:
    """What the recipe trains of its model."""
    rank = adapter_rank(model)
    if rank is None:
        kind = "float32" if model.dtype == "auto" else model.dtype
        return Trained(sizes.parameters, WIDTHS[kind], 0, None, kind != "float32")
    frozen = int(sizes.parameters * base_width(model))
    is_half = model.load_in_4bit or model.dtype != "float32"
    return Trained(sizes.lora_parameters(rank), WIDTHS["float32"], frozen, rank, is_half)


def held(recipe: Recipe, sizes: ModelSizes, world: int) -> dict[str, float]:
    """Bytes that one of `world` processes on a GPU holds between two steps, by what they are."""
    own, strategy = trained(recipe.model, sizes), recipe.launch.strategy
    weights = own.frozen + own.parameters * own.width
    gradients, moments = own.parameters * own.width, 2 * own.parameters * own.width
    splits = splits_parameters(strategy)
    shared, moved = (world if splits else 1), (world if strategy != "ddp" else 1)
    found = {"weights": weights / shared, "gradients": gradients / moved, "optimizer": moments / moved}
    if splits:
        found["whole copy that generates"] = sizes.parameters * HALF
    elif not own.is_half:
        matrices = sizes.body_parameters + sizes.head_parameters
        found["half-precision copies that generate"] = matrices * HALF
    if recipe.train.kl.beta > 0:
        found["reference"] = own.parameters * own.width / shared
    if recipe.train.critic is not None:
        counted = critic_parameters(recipe, sizes)
        found["critic"] = counted[0] * counted[1] if counted is not None else 0.0
    return found


def critic_parameters(recipe: Recipe, sizes: ModelSizes) -> tuple[int, int, str] | None:
    """Parameters of a critic, bytes of each with gradient and moments, and what they are; None where that is not known here."""
    critic, model = recipe.train.critic, recipe.model
    assert critic is not None
    width = ADAM * WIDTHS["float32"]
    if critic.share:
        return sizes.hidden + 1, width, "head"
    named = critic.model(model)
    if named is not None:
        other = local_sizes(named)
        return None if other is None else (other.parameters, width, f"parameters of `{named.path}`")
    rank = adapter_rank(model)
    if rank is not None:
        return sizes.lora_parameters(rank), width, "parameters of a second adapter"
    return sizes.parameters, ADAM * trained(model, sizes).width, "parameters of a copy"
