"""Whether episodes can be played with this model: the chat template goes on turn by turn, and what an episode takes at most."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.environments.tools.calls import as_action
from grpo_cli.errors import DataError, UserError
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.check.tokens import PromptMaker
from grpo_cli.jobs.rows import offered
from grpo_cli.policy.turns import Suffixes, call_form
from grpo_cli.recipe.sections.environment import Environment
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.judge import worlds_of


def check_episodes(
    maker: PromptMaker, rows: Sequence[Row], recipe: Recipe, base: Path | None
) -> Generator[CheckFinding, None, list[dict[str, Any]]]:
    """One finding for a recipe with an environment, none for another: the first row is begun and one action is taken.

    Returned are the schemas of its tools, which stand in every prompt.
    """
    if recipe.environment is None:
        return []
    worlds = worlds_of(recipe.environment, base)
    yield _check(recipe.environment, worlds, maker, rows, recipe)
    return worlds.tools


def _check(
    world: Environment, worlds: Worlds, maker: PromptMaker, rows: Sequence[Row], recipe: Recipe
) -> CheckFinding:
    try:
        suffixes = _suffixes(maker, world, recipe.model.path)
        worlds.start()
        if worlds.tools:
            maker.prompts.text(offered([rows[0]], worlds.tools)[0])
        seen = _tried(worlds, rows[0])
    except UserError as err:
        return failed("episodes", err)
    finally:
        worlds.close()
    between = max((len(suffixes(text, suffixes.closing)) for text in seen), default=0)
    budget = recipe.sample.max_tokens
    data = {"max_turns": world.max_turns, "between": between, "budget": budget}
    if worlds.tools:
        names = ", ".join(str(tool["function"]["name"]) for tool in worlds.tools)
        said = f"episodes of at most {world.max_turns} turns with the tools {names}; `sample.max_tokens` {budget:,} ends them"
        return CheckFinding("episodes", Level.OK, said, data=data)
    turns = (
        f"episodes of at most {world.max_turns} turns, {between} tokens between two as tried on the first row"
    )
    if world.turn_tokens is None:
        return CheckFinding(
            "episodes", Level.OK, f"{turns}; `sample.max_tokens` {budget:,} ends them", data=data
        )
    most = world.max_turns * world.turn_tokens + (world.max_turns - 1) * between
    data["most"] = most
    said = f"{turns}: at most {most:,} tokens, `sample.max_tokens` is {budget:,}"
    if most > budget:
        hint = "episodes whose turns are that long are cut and count as truncated"
        return CheckFinding("episodes", Level.NOTE, said, data=data, hint=hint)
    return CheckFinding("episodes", Level.OK, said, data=data)


def _suffixes(maker: PromptMaker, world: Environment, name: str) -> Suffixes:
    ends = [token for token, text in maker.encodes.special.items() if text == maker.roles.get("eos_token")]

    def render(messages: Sequence[Mapping[str, Any]], opens: bool) -> list[int]:
        return maker.encodes.ids([maker.prompts.chat_text(messages, opens=opens)], True)[0]

    form = call_form(maker.prompts, name) if world.has_calls else None
    found = Suffixes(render, ends, world.speaks_as, name, form)
    found.check()
    return found


def _tried(worlds: Worlds, row: Row) -> list[str]:
    """What the world says after one action on a row, if it says anything.

    Raises:
        DataError: it cannot begin with this row.
    """
    ((world, begun),) = worlds.open([(row.fields, 0)])
    if isinstance(begun, Fault):
        raise DataError(begun.text, place=row.place, hint="mend the row, or the environment's `reset`")
    nothing = as_action([]) if worlds.tools else ""
    action = worlds.demonstrate([world])[0] if worlds.demonstrates else nothing
    step = worlds.step([(world, action)])[0] if isinstance(action, str) else action
    return [] if isinstance(step, Fault) else [step.observation]
