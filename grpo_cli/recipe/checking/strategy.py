"""What `launch.strategy` may be, in words, and what cannot go with it.

Only what was tried is allowed: a combination that would fail in the middle of a run is a mistake of the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import SetupError
from grpo_cli.recipe.checking.mistakes import RecipeFinding
from grpo_cli.recipe.paths import Path

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe

STRATEGIES = {
    "ddp": "Each process holds all parameters, gradients and optimizer state; gradients are averaged (torch's DDP).",
    "fsdp2": "Each process holds its share of parameters, gradients and optimizer state (torch's fully_shard, through"
    " accelerate); layers are gathered for their forward and backward pass. A whole copy of the weights beside the"
    " shards, in bfloat16 on a GPU, generates, is evaluated and is the KL's; it is renewed after each update. Each process loads the whole model first.",
    "zero2": "Each process holds all weights, and its share of gradients and optimizer state (DeepSpeed's ZeRO stage 2,"
    " through accelerate). Rollouts read the weights in place. Needs the extra `deepspeed`.",
    "zero3": "Each process holds its share of parameters, gradients and optimizer state (DeepSpeed's ZeRO stage 3,"
    " through accelerate), and a whole copy of the weights as with `fsdp2`. Needs the extra `deepspeed`.",
}
"""What each process holds."""

OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd")
"""Optimizers that were run on shards."""

UNTRIED = ("torch_compile", "use_liger_kernel")


def check_strategy(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """What cannot go with a strategy that shards."""
    launch, trl = recipe.launch, recipe.train.trl
    strategy, path = launch.strategy, ("launch", "strategy")
    if strategy == "ddp":
        return
    if launch.gpus == 1 and launch.cpu_ranks == 1 and launch.nodes == 1:
        yield RecipeFinding(
            path,
            f"`launch.strategy: {strategy}` spreads the training over processes, and the recipe asks for one",
            "raise `launch.gpus`, or leave `launch.strategy` out",
        )
    if recipe.sample.engine_kind.through_trl:
        yield RecipeFinding(
            path,
            f"`sample.engine: {recipe.sample.engine}` does not take weights from `launch.strategy: {strategy}`",
            "leave one of the two out",
        )
    if recipe.train.mini_batches > 1:
        yield RecipeFinding(
            path,
            f"`train.mini_batches` was not tried with `launch.strategy: {strategy}`, which steps inside its own engine",
            "leave one of the two out",
        )
    if recipe.model.load_in_4bit:
        yield RecipeFinding(
            path,
            f"`model.load_in_4bit` does not go with `launch.strategy: {strategy}`: weights in 4 bits are not sharded",
            "leave one of the two out",
        )
    optimizer = trl.get("optim", OPTIMIZERS[0])
    if optimizer not in OPTIMIZERS:
        yield RecipeFinding(
            ("train", "trl", "optim"),
            f"`{optimizer}` was not made for the shards of `launch.strategy: {strategy}`",
            f"one of {', '.join(OPTIMIZERS)}",
        )
    for name in UNTRIED:
        if trl.get(name):
            yield RecipeFinding(
                ("train", "trl", name), f"`{name}` does not go with `launch.strategy: {strategy}`", "leave it out"
            )


def check_processes(strategy: str, world: int) -> None:
    """Raises SetupError where the strategy cannot run with so many processes."""
    if strategy == "ddp":
        return
    if world == 1:
        raise SetupError(
            f"`launch.strategy: {strategy}` spreads the training over processes, and there is one",
            hint="leave it out, or raise `launch.gpus` (on a CPU `launch.cpu_ranks`)",
        )


def splits_parameters(strategy: str) -> bool:
    """Whether a process holds only its share of each parameter, so that rollouts need a copy of the whole."""
    return strategy in ("fsdp2", "zero3")


def describe(name: str) -> dict[str, Any]:
    """What a strategy does."""
    return {"strategy": name, "summary": STRATEGIES[name]}
