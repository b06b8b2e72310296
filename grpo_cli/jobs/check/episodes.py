"""Whether episodes can be played with this model: the chat template goes on turn by turn, and what an episode takes at most."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.environments.tools.calls import as_action
from grpo_cli.errors import UserError
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.check.lengths import PromptLengths
from grpo_cli.jobs.check.reading import spread_parts
from grpo_cli.jobs.check.tokens import PromptMaker
from grpo_cli.jobs.rows import offered
from grpo_cli.policy.prompts.conversation import Conversation, call_form
from grpo_cli.policy.turns import TurnSuffixes
from grpo_cli.recipe.sections.environment import Environment
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.judge import worlds_of
from grpo_cli.rollout.episodes.opening import begun_alike, with_observation


@dataclass(frozen=True, slots=True)
class Beginnings:
    """What is known once the worlds were begun: the schemas of their tools, which stand in every prompt, and the prompts'
    tokens with what `reset` says."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    lengths: PromptLengths | None = None


def check_episodes(
    maker: PromptMaker, rows: Sequence[Row], recipe: Recipe, base: Path | None, budget_s: float | None = None
) -> Generator[CheckFinding, None, Beginnings]:
    """One finding for a recipe with an environment, none for another: rows are begun, all or as many as `budget_s` seconds
    allow, and on the first of them one action is taken."""
    world = recipe.environment
    if world is None:
        return Beginnings()
    worlds = worlds_of(world, base)
    try:
        suffixes = _suffixes(maker, world, recipe.model.path)
        worlds.start()
        lengths = _begin(maker, worlds, rows, budget_s)
        seen = _act(worlds, rows[0])
        between = max((len(suffixes(text, suffixes.closing)) for text in seen), default=0)
    except UserError as err:
        yield failed("episodes", err)
        return Beginnings(worlds.tools)
    finally:
        worlds.close()
    yield _finding(world, worlds.tools, lengths, between, recipe.sample.max_tokens)
    return Beginnings(worlds.tools, lengths)


def _finding(
    world: Environment, tools: list[dict[str, Any]], lengths: PromptLengths, between: int, budget: int
) -> CheckFinding:
    prompt = lengths.counts[-1]
    data = {"max_turns": world.max_turns, "between": between, "budget": budget, "prompt": prompt}
    begun = f"behind prompts of at most {prompt:,} tokens"
    if lengths.counts != sorted(alone for alone, _ in lengths.pairs):
        begun += " with what `reset` says"
    if tools:
        names = ", ".join(str(tool["function"]["name"]) for tool in tools)
        said = f"episodes of at most {world.max_turns} turns with the tools {names}, {begun}; `sample.max_tokens` {budget:,} ends them"
        return CheckFinding("episodes", Level.OK, said, data=data)
    turns = (
        f"episodes of at most {world.max_turns} turns, {between} tokens between two as tried on the first row"
    )
    if world.turn_tokens is None:
        said = f"{turns}, {begun}; `sample.max_tokens` {budget:,} ends them"
        return CheckFinding("episodes", Level.OK, said, data=data)
    most = world.max_turns * world.turn_tokens + (world.max_turns - 1) * between
    data["most"] = most
    said = f"{turns}: at most {most:,} tokens {begun}; `sample.max_tokens` is {budget:,}"
    if most > budget:
        hint = "episodes whose turns are that long are cut and count as truncated"
        return CheckFinding("episodes", Level.NOTE, said, data=data, hint=hint)
    return CheckFinding("episodes", Level.OK, said, data=data)


def _suffixes(maker: PromptMaker, world: Environment, name: str) -> TurnSuffixes:
    ends = [token for token, text in maker.encodes.special.items() if text == maker.roles.get("eos_token")]

    def encode(text: str) -> list[int]:
        return maker.encodes.ids([text], True)[0]

    form = call_form(maker.prompts, name) if world.has_calls else None
    return TurnSuffixes(
        Conversation(
            lambda messages, opens: maker.prompts.chat_text(messages, opens=opens),
            encode,
            ends,
            world.speaks_as,
            name,
            form,
        )
    )


def _begin(maker: PromptMaker, worlds: Worlds, rows: Sequence[Row], budget_s: float | None) -> PromptLengths:
    """Tokens of the rows' prompts, with what their worlds say at the start.

    Raises:
        DataError: a world cannot begin with its row.
    """
    alone, counts = list[int](), list[int]()
    began = 0.0
    # the first by itself: most mistakes are in all rows, and it may load a lot
    for part in (rows[:1], *(spread_parts(rows[1:]) if rows[1:] else ())):
        shown = offered(list(part), worlds.tools)
        said = [text for _, text in worlds.open([(row.fields, 0) for row in part])]
        begun = [
            with_observation(row, begun_alike(row, [text])) for row, text in zip(shown, said, strict=True)
        ]
        counts += maker.counts(begun)
        alone += counts[-len(part) :] if begun == shown else maker.counts(shown)
        began = began or time.perf_counter()
        if budget_s is not None and time.perf_counter() - began > budget_s:
            break
    return PromptLengths.of(counts, len(rows), alone)


def _act(worlds: Worlds, row: Row) -> list[str]:
    """What the world says after one action on a row, if it says anything."""
    ((world, begun),) = worlds.open([(row.fields, 0)])
    assert not isinstance(begun, Fault), begun  # it has begun with this row before
    nothing = as_action([]) if worlds.tools else ""
    action = worlds.demonstrate([world])[0] if worlds.demonstrates else nothing
    step = worlds.step([(world, action)])[0] if isinstance(action, str) else action
    return [] if isinstance(step, Fault) else [step.observation]
