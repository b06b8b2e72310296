"""Rules of `stages`, and of the method `sft`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from grpo_cli.recipe.checking.mistakes import RecipeFinding
from grpo_cli.recipe.paths import Path
from grpo_cli.recipe.sections.recipe import Recipe

NAME = re.compile(r"[A-Za-z0-9_-]+")
WHOLE = ("grpo", "extends", "stages", "run", "launch", "model")
"""Keys that are the whole recipe's, and the same in every stage."""


def check_stages(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """What no chain can be."""
    if recipe.stages is None:
        return
    seen: set[str] = set()
    for i, stage in enumerate(recipe.stages):
        path: Path = ("stages", i)
        if not NAME.fullmatch(stage.name):
            yield RecipeFinding(
                (*path, "name"), f"a stage cannot be named `{stage.name}`", "letters, digits, `_` and `-`"
            )
        if stage.name in seen:
            yield RecipeFinding((*path, "name"), f"two stages are named `{stage.name}`")
        seen.add(stage.name)
        for key in WHOLE:
            if key in stage.keys:
                yield RecipeFinding(
                    (*path, key), f"`{key}` is the whole recipe's: say it outside `stages`", at_key=True
                )
    if recipe.model.lora is not None:
        yield RecipeFinding(
            ("model", "lora"), "`stages` hand on whole weights, and an adapter is none", "leave `lora` out"
        )
    launch = recipe.launch
    several = [key for key in ("gpus", "cpu_ranks", "nodes") if getattr(launch, key) not in ("auto", 1)]
    for key in [*several, *(["strategy"] if launch.strategy != "ddp" else [])]:
        yield RecipeFinding(("launch", key), "`stages` run in one process", f"leave `launch.{key}` out")


def check_sft(recipe: Recipe, said: Callable[[Path], bool]) -> Iterator[RecipeFinding]:
    """Supervised training needs demonstrations, and only it has them."""
    if recipe.train.method == "sft" and not recipe.sft:
        yield RecipeFinding(
            ("train", "method"),
            "`method: sft` has no demonstrations",
            "such as `sft: {data: run:NAME, steps: 30, lr: 1e-4}`",
        )
    if recipe.train.method != "sft" and recipe.sft is not None:
        yield RecipeFinding(
            ("sft",),
            f"`sft` has no effect with `train.method: {recipe.train.method}`",
            "say `train.method: sft`",
            at_key=True,
        )
