"""Procedural sources `tasks:NAME`: rows are generated offline; the same options always give the same rows.

Train and test never share a question; each task's module docstring describes how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Literal

from grpo_cli.errors import RecipeError
from grpo_verifiers.names import near_or_known

Split = Literal["train", "test"]

TASKS: dict[str, str] = {
    "addition3": "grpo_cli.data.tasks.addition3",
    "functions": "grpo_cli.data.tasks.functions",
    "instructions": "grpo_cli.data.tasks.instructions",
    "metamath": "grpo_cli.data.tasks.metamath",
    "records": "grpo_cli.data.tasks.records",
    "seeds": "grpo_cli.data.tasks.seeds",
    "squares": "grpo_cli.data.tasks.squares",
    "shop": "grpo_cli.data.tasks.shop",
    "keydoor": "grpo_cli.environments.worlds.keydoor",
    "guess": "grpo_cli.environments.worlds.guess",
    "calculator": "grpo_cli.environments.worlds.calculator",
}


def task_rows(name: str, split: Split, options: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    """The rows of a procedural task; `place` names the recipe key for errors.

    Raises:
        RecipeError: unknown task or option.
        SetupError: `rg/…` without reasoning-gym.
    """
    if name.startswith("rg/"):
        from grpo_cli.data.tasks.gym import gym_rows

        return gym_rows(name.removeprefix("rg/"), split, options, place)
    if name not in TASKS:
        raise RecipeError(f"unknown task `tasks:{name}`{near_or_known(name, [*TASKS, 'rg/NAME'])}", place=place)
    module = import_module(TASKS[name])
    for option, value in options.items():
        if option not in module.OPTIONS:
            raise RecipeError(
                f"unknown option `{option}` of `tasks:{name}`{near_or_known(option, list(module.OPTIONS))}", place=place
            )
        if type(value) is not int or value < 0:
            raise RecipeError(
                f"option `{option}` of `tasks:{name}` is a whole number from 0, got {value!r}", place=place
            )
    rows: Iterator[dict[str, Any]] = module.rows(split, **options)
    return rows


def distinct(draw: Callable[[], tuple[str, dict[str, Any]]], wanted: int) -> Iterator[dict[str, Any]]:
    """At most `wanted` rows of differing texts; `draw` makes a text and its row. Fewer where nearly all have been drawn."""
    seen: set[str] = set()
    for _ in range(20 * wanted):
        if len(seen) == wanted:
            return
        text, row = draw()
        if text not in seen:
            seen.add(text)
            yield row
