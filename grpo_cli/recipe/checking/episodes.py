"""What an `environment` cannot go with, each with the reason and a way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from grpo_cli.recipe.checking.mistakes import RecipeFinding
from grpo_cli.recipe.paths import Path
from grpo_cli.recipe.sections.environment import Environment
from grpo_cli.recipe.sections.recipe import Recipe

VLLM = (
    ("mode", "colocate", "a vLLM server takes no seed and no limit for each turn of an episode"),
    ("tensor_parallel_size", 1, "a vLLM shared by processes would need all of them to be at the same turn"),
    ("enable_sleep_mode", False, "vLLM would be woken, and be sent the weights, for each turn of the episodes"),
)
"""Settings of `sample.vllm`: the only value that plays episodes, and why."""


def check_episodes(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """Sections that have no meaning for episodes of many turns, and the other way round."""
    world = recipe.environment
    if world is None:
        for i, phase in enumerate(recipe.warmup or []):
            if not phase.demonstration:
                path: Path = ("warmup", i, "demonstration") if said(("warmup", i, "demonstration")) else ("warmup", i)
                yield RecipeFinding(
                    path,
                    f"`warmup[{i}].demonstration` is missing",
                    "a template over columns: what a good completion looks like",
                )
        for name, one in recipe.verify.items():
            if one.kind == "environment":
                yield RecipeFinding(
                    ("verify", name),
                    f"`verify.{name}` is the outcome of an environment, and the recipe has none",
                    "add `environment: FILE.py:CLASS`",
                    at_key=True,
                )
        return
    yield from _what(world, recipe, said)
    if world.history == "last":
        yield RecipeFinding(
            ("environment", "history"),
            "`history: last` would make a row of each turn, and a row is one whole episode here",
            "say `history: full`; what must be remembered can stand in the observation",
        )
    if world.turn_tokens is not None and world.turn_tokens > recipe.sample.max_tokens:
        yield RecipeFinding(
            ("environment", "turn_tokens"),
            f"`environment.turn_tokens` is {world.turn_tokens}, `sample.max_tokens` of the whole episode only"
            f" {recipe.sample.max_tokens}",
        )
    if recipe.train.std_floor == "noise":
        yield RecipeFinding(
            ("train", "std_floor"),
            "`std_floor: noise` scores answers twice, and the outcome of an episode is not scored again",
            "say a number, such as 0.1",
        )
    if recipe.data.plain:
        yield RecipeFinding(
            ("data", "plain"),
            "`data.plain` has no turns: what the environment says is put between them by the chat template",
            "leave it out",
        )
    yield from _generation(recipe)


def _what(world: Environment, recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """What the world is made of."""
    given = [key for key in ("python", "tools", "trl", "verifiers") if getattr(world, key) is not None]
    if len(given) != 1:
        yield RecipeFinding(
            ("environment",),
            f"`environment` has {' and '.join(f'`{key}`' for key in given) or 'no world'}",
            "say one of `python: FILE.py:CLASS`, `tools: [FILE.py:FUNCTION]`, `trl: FILE.py:CLASS` and `verifiers: ID`",
        )
        return
    forms = {
        "python": "`FILE.py:CLASS`, `MODULE:CLASS` or `environments:NAME`",
        "trl": "`FILE.py:CLASS` or `MODULE:CLASS`",
        "tools": "`FILE.py:FUNCTION`, `MODULE:FUNCTION` or `python`",
    }
    for name in world.named if world.kind in forms else ():
        if not all(name.rpartition(":")[::2]) and (world.kind, name) != ("tools", "python"):
            yield RecipeFinding(("environment", world.kind), f"`{name}` is not {forms[world.kind]}")
    if world.has_calls and said(("environment", "role")) and world.role != "tool":
        yield RecipeFinding(
            ("environment", "role"), f"results of tools have the role `tool`, not `{world.role}`", "leave `role` out"
        )
    if world.kind == "tools" and all(one.kind == "environment" for one in recipe.verify.values()):
        yield RecipeFinding(
            ("environment", "tools"),
            "functions say nothing of how good an answer is, and there is no verifier",
            "add one under `verify`: it judges the turn in which the model calls no tool",
        )


def _generation(recipe: Recipe) -> Iterator[RecipeFinding]:
    sample = recipe.sample
    if not sample.engine_kind.has_own_seeds:
        yield RecipeFinding(
            ("sample", "engine"),
            f"the engine `{sample.engine}` draws all samples from one stream: the same episode would differ with its neighbours",
            "say `engine: auto`, or leave it out",
        )
    if sample.engine_kind.through_trl:
        for key, allowed, why in VLLM:
            if sample.vllm.get(key, allowed) != allowed:
                yield RecipeFinding(
                    ("sample", "vllm", key), why, f"say `{key}: {str(allowed).lower()}`, or `engine: auto`"
                )
    if recipe.train.select == "screen":
        yield RecipeFinding(
            ("train", "select"),
            "`select: screen` plays part of a group and goes on with it later, which episodes cannot yet",
            "choose another, such as `uniform`",
        )
