"""Checks whether episodes can be played with this model: whether the chat template continues turn by turn, and the most
tokens of an episode.

How this works: `check_episodes` starts the environments, begins rows in them, takes one action in the first, and counts
tokens. If the run learns from the environment's demonstrations, some rows are begun with two seeds, to estimate the
number of different demonstrations.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from types import SimpleNamespace
from typing import Any, cast

from grpo_cli.data.rows import Row
from grpo_cli.environments.harness import Harness
from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.environments.tools.calls import as_action
from grpo_cli.errors import UserError
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.check.prompts import PromptLengths
from grpo_cli.jobs.check.reading import spread_parts
from grpo_cli.jobs.check.tokens import PromptMaker
from grpo_cli.jobs.rows import offered
from grpo_cli.policy.prompts.conversation import WORDS, Conversation, call_form
from grpo_cli.policy.turns import TurnSuffixes
from grpo_cli.recipe.engines import ENGINES
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.recipe.sections.recipe import Recipe, WarmupPhase
from grpo_cli.reward.judge import worlds_of
from grpo_cli.rollout.engine import Completion, Request, SamplingSettings
from grpo_cli.rollout.episodes.running import refuse_undemonstrated, same_observation, with_observation

MOST_REPEATS = 20


@dataclass(frozen=True, slots=True)
class Beginnings:
    """The results of beginning episodes: the first row with tools and first observation, and the token counts of all
    begun rows."""

    first: Row | None = None
    lengths: PromptLengths | None = None


def check_episodes(
    maker: PromptMaker,
    rows: Sequence[Row],
    recipe: Recipe,
    base: Path | None,
    budget_s: float | None = None,
    trained: int | None = None,
) -> Generator[CheckFinding, None, Beginnings]:
    """One finding for a recipe with an environment, none for other recipes. It begins all rows, or as many as
    `budget_s` seconds allow, and takes one action in the first. The first `trained` rows are training rows; None: all
    are."""
    world = recipe.environment
    if world is None:
        return Beginnings()
    worlds = worlds_of(world, base)
    if isinstance(worlds, Harness):
        return (yield from _check_harness(maker, rows, worlds, world, recipe))
    try:

        def encode(text: str) -> list[int]:
            return maker.encodes.ids([text], True)[0]

        form = call_form(maker.prompts, recipe.model.path) if world.has_calls else None
        suffixes = TurnSuffixes(
            Conversation(
                lambda messages, opens: maker.prompts.chat_text(messages, opens=opens),
                encode,
                maker.ends,
                world.speaks_as,
                recipe.model.path,
                form,
            )
        )
        worlds.start()
        shows = any(not phase.demonstration for phase in recipe.warmup or ())
        if shows:
            worlds.refuse_silent()
        begun = _begin(maker, worlds, rows, budget_s, shows=shows)
        if shows:
            yield from _repeats(worlds, rows[:trained], recipe)
        # take one action: a demonstrated one, else an empty one
        ((tried, opened),) = worlds.open([(rows[0].fields, 0)])
        assert not isinstance(opened, Fault), opened  # the environment has begun this row before
        nothing = as_action([]) if worlds.tools else ""
        action = worlds.demonstrate([tried])[0] if worlds.demonstrates else nothing
        step = worlds.step([(tried, refuse_undemonstrated(rows[0], action))])[0]
        between = 0 if isinstance(step, Fault) else len(suffixes(step.observation, suffixes.closing))
    except UserError as err:
        yield failed("episodes", err)
        return Beginnings()
    finally:
        worlds.close()
    assert begun.lengths is not None
    if isinstance(step, Fault):
        hint = "episodes that act so have no verdict: `step` answers every text"
        yield CheckFinding("episodes", Level.WARN, f"on the first row, {step.text}", hint=hint)
    else:
        yield _finding(world, worlds.tools, begun.lengths, between, recipe.sample.max_tokens)
    return begun


class _Scripted:
    """Policy and engine in one, without weights: every turn is the same words. For a trial of a program that asks for turns."""

    kind, model, context = ENGINES["graph"], None, None

    def __init__(self, maker: PromptMaker) -> None:
        self.maker, self.prompts, self.end_ids = maker, maker.prompts, frozenset(maker.ends)
        self.turn = [*self.tokenizer(WORDS).input_ids, *sorted(self.end_ids)[:1]]

    def tokenizer(self, text: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(input_ids=self.maker.encodes.ids([text], True)[0])

    def encode(self, row: Row) -> list[int]:
        return self.maker.ids([row])[0]

    def decode(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        return [WORDS] * len(token_ids)

    decode_whole = decode

    def generate(self, requests: Sequence[Request], settings: SamplingSettings) -> list[list[Completion]]:
        return [[Completion(self.turn, [0.0] * len(self.turn), "stop")] for _ in requests]


def _check_harness(
    maker: PromptMaker, rows: Sequence[Row], harness: Harness, spec: Environment, recipe: Recipe
) -> Generator[CheckFinding, None, Beginnings]:
    """Whether its program is there, its score loads and the rows have what it is passed; and what it does on the first row, played
    twice with the same answers."""
    from grpo_cli.rollout.episodes.harness import HarnessEpisodes  # with torch, which other recipes are checked without

    harness.episode_s = min(harness.episode_s, TRIED_S)
    try:
        harness.start()
        for row in rows:
            harness.passed(row.fields, row.place)
        counts, scripted = maker.counts(rows), cast(Any, _Scripted(maker))
        began = sum(getrusage(RUSAGE_CHILDREN)[:2])
        play = HarnessEpisodes(spec, harness, scripted, scripted).open(rows[:1], 2, 0)
        (tries,) = play.generate(SamplingSettings.of(recipe.sample, 0))
        cpu_s = (sum(getrusage(RUSAGE_CHILDREN)[:2]) - began) / 2
    except UserError as err:
        yield failed("episodes", err)
        return Beginnings()
    finally:
        harness.close()
    one, other = (played.episode for played in tries)
    assert one is not None and other is not None
    passed = ", ".join(f"`{name}`" for name in harness.given) or "nothing"
    said = f"`{harness.name}`, which is passed {passed}, asks {one.counts['requests']} times on the first row"
    whys = {
        name: one.counts[name] for name in ("history", "tools", "template", "root", "sibling") if one.counts.get(name)
    }
    if whys:
        said += f", in {one.counts['rows']} rows ({', '.join(f'{name} {n}' for name, n in whys.items())})"
    repeats = (one.transcript, one.answer, one.outcome) == (other.transcript, other.answer, other.outcome)
    if not spec.is_taskset:  # its processes are children of another one, whose time is not known here
        said += f"; {cpu_s * recipe.sample.prompts * recipe.sample.group:.0f} CPU s a step"
    data = {
        "requests": one.counts["requests"],
        "rows": one.counts["rows"],
        "why": whys,
        "repeats": repeats,
        "cpu_s": cpu_s,
    }
    if one.reason:
        hint = "episodes that end so have no verdict; here every answer was the one word `sure`"
        yield CheckFinding("episodes", Level.WARN, f"{said}: {one.problem}", data=data, hint=hint)
    elif not repeats:
        hint = "the same answers led elsewhere: samples of a row are not compared by what the policy does alone"
        yield CheckFinding("episodes", Level.NOTE, said, data=data, hint=hint)
    else:
        yield CheckFinding("episodes", Level.OK, said, data=data)
    return Beginnings(rows[0], PromptLengths.of(counts, len(rows), counts, list(rows)))


TRIED_S = 30.0
"""Seconds that a program may take in a trial."""
SHOWN_TWICE = 32


def _repeats(worlds: Worlds, rows: Sequence[Row], recipe: Recipe) -> Iterator[CheckFinding]:
    """A note if the environment has so few demonstrations that the warm-up repeats each many times. Some rows are begun
    with two seeds: if both give the same environment, the row determines it."""
    some = rows[:SHOWN_TWICE]
    seen = []
    for seed in (0, 1):
        opened = worlds.open([(row.fields, seed) for row in some])
        actions = worlds.demonstrate([world for world, _ in opened])
        seen.append([(begun, action) for (_, begun), action in zip(opened, actions, strict=True)])
    if seen[0] != seen[1]:
        return
    for i, phase in enumerate(recipe.warmup or ()):
        if not phase.demonstration and phase.data is None:
            yield from check_repeats(f"warmup[{i}]", phase, len(rows[: phase.limit]), "draw the world from `seed`")


def check_repeats(check: str, phase: WarmupPhase, texts: int, or_else: str) -> Iterator[CheckFinding]:
    """A note where a phase shows each of its texts more than 20 times."""
    repeats = phase.steps * phase.batch / max(texts, 1)
    if repeats > MOST_REPEATS:
        said = f"{texts:,} demonstrations, each shown {repeats:.0f} times: they will be learned by heart"
        yield CheckFinding(check, Level.NOTE, said, hint=f"more rows, fewer steps, or {or_else}")


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
    turns = f"episodes of at most {world.max_turns} turns, {between} tokens between two as tried on the first row"
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


def _begin(
    maker: PromptMaker, worlds: Worlds, rows: Sequence[Row], budget_s: float | None, *, shows: bool
) -> Beginnings:
    """The rows' prompts with their first observations; if the run `shows` demonstrations, each environment is asked for
    an action.

    Raises:
        DataError: an environment cannot begin its row, or cannot demonstrate its first action.
    """
    alone, counts, seen = list[int](), list[int](), list[Row]()
    first: Row | None = None
    began = 0.0
    # begin the first row alone: most mistakes concern all rows, and the first may load a lot of data
    for part in (rows[:1], *(spread_parts(rows[1:]) if rows[1:] else ())):
        shown = offered(list(part), worlds.tools)
        opened = worlds.open([(row.fields, 0) for row in part])
        begun = [
            with_observation(row, same_observation(row, [text])) for row, (_, text) in zip(shown, opened, strict=True)
        ]
        for row, action in zip(part, worlds.demonstrate([world for world, _ in opened]) if shows else (), strict=False):
            refuse_undemonstrated(row, action)
        first = first or begun[0]
        counts += maker.counts(begun)
        seen += part
        alone += counts[-len(part) :] if begun == shown else maker.counts(shown)
        began = began or time.perf_counter()
        if budget_s is not None and time.perf_counter() - began > budget_s:
            break
    return Beginnings(first, PromptLengths.of(counts, len(rows), alone, seen))
