"""Rows to judged groups: one call of the engine and one of the judge, shared out over the ranks.

Chance depends on the recipe's seed, the step and the number of the call in it, so that a resumed run draws the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from grpo_cli.data.rows import Row
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.rollout.engine import Completion, Engine, OnFinish, Request, SamplingSettings
from grpo_cli.rollout.episodes.play import Episodes

Encode = Callable[[Row], list[int]]
"""Token ids of the prompt of a row."""


@dataclass(frozen=True, slots=True)
class EngineCall:
    """The `number`-th call (from 1) of the engine in a step (from 0)."""

    step: int
    number: int


@dataclass(frozen=True, slots=True)
class RowCompletions:
    """What one row was sampled with."""

    row: int
    prompt_ids: list[int]
    completions: list[Completion]


class HasRow(Protocol):
    """Anything that belongs to a row."""

    @property
    def row(self) -> int: ...


G = TypeVar("G", bound=HasRow)


class GroupJudgeLike(Protocol[G]):
    """What makes groups of samples, and may listen while they come."""

    def listening(self, rows: Sequence[int]) -> AbstractContextManager[OnFinish | None]: ...
    def groups(self, sampled: Sequence[RowCompletions], call: EngineCall) -> list[G]: ...


class Progress(Protocol):
    """Shows how far a step is, and counts its seconds."""

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None: ...
    def timed(self, name: str) -> AbstractContextManager[None]: ...


class Collect(Generic[G]):
    """Samples and judges rows; each rank does its share and all have the result."""

    def __init__(
        self,
        recipe: Recipe,
        rows: Sequence[Row],
        engine: Engine,
        judges: GroupJudgeLike[G],
        encode: Encode,
        progress: Progress,
        ranks: Ranks | None = None,
        episodes: Episodes | None = None,
    ) -> None:
        """`episodes`: what plays them, where a recipe has an environment; each sample is one then."""
        self.recipe, self.rows, self.engine, self.judges = recipe, rows, engine, judges
        self.episodes = episodes
        self.encode, self.progress, self.ranks = encode, progress, ranks or Ranks()

    def __call__(self, rows: Sequence[int], size: int, call: EngineCall, first: int = 0) -> list[G]:
        """A judged group of `size` samples for each row, in order; the row has `first` samples of this step already.

        Raises:
            ServerLost: the engine's server is gone.
        """
        # every world-th row: neighbours, which are often alike in length, go to different ranks
        sampled = self.sample(rows[self.ranks.rank :: self.ranks.world], size, call, first)
        self.progress.phase("verify", 0, sum(len(s.completions) for s in sampled))
        with self.progress.timed("verify"):
            own = self.judges.groups(sampled, call)
        # gathered by rank, wanted in the order of `rows`, so that a step is the same on any number of ranks
        by_row = {group.row: group for group in self.ranks.gathered(own)}
        return [by_row[row] for row in rows]

    def sample(self, rows: Sequence[int], size: int, call: EngineCall, first: int = 0) -> list[RowCompletions]:
        """`size` completions for each of this rank's rows, its samples from `first` on."""
        total, settings = len(rows) * size, self.settings(call)
        # judges may listen: a sample is judged as soon as it ends, while others are generated
        self.progress.phase("generate", 0, total)
        with self.progress.timed("generate"), self.judges.listening(rows) as on_finish:
            generate: Callable[..., list[list[Completion]]]
            if self.episodes is not None:
                assert settings.seed is not None
                play = self.episodes.open([self.rows[row] for row in rows], size, settings.seed, first)
                prompts, generate = play.prompts, play.generate
            else:
                prompts = [self.encode(self.rows[row]) for row in rows]
                generate = partial(self.engine.generate, [Request(ids, size) for ids in prompts])
            found = generate(
                settings, on_finish=on_finish, on_progress=lambda done, _: self.progress.phase("generate", done, total)
            )
        return [RowCompletions(*each) for each in zip(rows, prompts, found, strict=True)]

    def settings(self, call: EngineCall) -> SamplingSettings:
        """The recipe's sampling with a seed of this call's own: no global random state is used."""
        # a row that is sampled twice in a step gets new samples
        seed = step_seed(self.recipe.train.seed, call.step) + call.number - 1
        if not self.engine.kind.has_own_seeds:  # each rank needs its own
            seed += 7919 * self.ranks.rank
        return sampling(self.recipe, seed)


def sampling(recipe: Recipe, seed: int | None = None) -> SamplingSettings:
    """How a recipe samples."""
    return SamplingSettings.of(recipe.sample, seed)


def step_seed(seed: int, step: int) -> int:
    """A seed that depends on the recipe's seed and on how many steps were done, on nothing else."""
    # of integers, which no PYTHONHASHSEED changes; 31 bits, which every generator takes
    return hash((seed, step)) & 0x7FFFFFFF
