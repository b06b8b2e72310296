"""Makes judged groups from rows: one call of the engine and one of the judge, distributed over the ranks.

Sampling is seeded by the recipe's seed, the step and the number of the call in it, so a resumed run draws the same
samples.
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
from grpo_cli.rollout.episodes.harness import HarnessEpisodes
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
    """The prompt and the completions of one row."""

    row: int
    prompt_ids: list[int]
    completions: list[Completion]


class HasRow(Protocol):
    """Anything that belongs to a row."""

    @property
    def row(self) -> int: ...


G = TypeVar("G", bound=HasRow)


class GroupJudgeLike(Protocol[G]):
    """Makes groups from samples; may receive samples while others are generated."""

    def listening(self, rows: Sequence[int]) -> AbstractContextManager[OnFinish | None]: ...
    def groups(self, sampled: Sequence[RowCompletions], call: EngineCall) -> list[G]: ...


class Progress(Protocol):
    """Shows the progress of a step, and counts its seconds."""

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None: ...
    def timed(self, name: str) -> AbstractContextManager[None]: ...


class Collect(Generic[G]):
    """Samples and judges rows; each rank does its share, and all ranks get the result."""

    def __init__(
        self,
        recipe: Recipe,
        rows: Sequence[Row],
        engine: Engine,
        judges: GroupJudgeLike[G],
        encode: Encode,
        progress: Progress,
        ranks: Ranks | None = None,
        episodes: Episodes | HarnessEpisodes | None = None,
    ) -> None:
        """`episodes` plays the recipe's environment, if it has one; each sample is then an episode."""
        self.recipe, self.rows, self.engine, self.judges = recipe, rows, engine, judges
        self.episodes = episodes
        self.encode, self.progress, self.ranks = encode, progress, ranks or Ranks()

    def __call__(self, rows: Sequence[int], size: int, call: EngineCall, first: int = 0) -> list[G]:
        """A judged group of `size` samples for each row, in order; the row has `first` samples of this step already.

        Raises:
            ServerLost: the engine's server is gone.
        """
        # every world-th row: neighbours often have similar length and should go to different ranks
        sampled = self.sample(rows[self.ranks.rank :: self.ranks.world], size, call, first)
        self.progress.phase("verify", 0, sum(len(s.completions) for s in sampled))
        with self.progress.timed("verify"):
            own = self.judges.groups(sampled, call)
        # gathered by rank: restore the order of `rows`, so that a step is the same on any number of ranks
        by_row = {group.row: group for group in self.ranks.gathered(own)}
        return [by_row[row] for row in rows]

    def sample(self, rows: Sequence[int], size: int, call: EngineCall, first: int = 0) -> list[RowCompletions]:
        """`size` completions for each of this rank's rows, beginning with sample number `first`."""
        total, settings = len(rows) * size, self.settings(call)
        # a judge may receive each sample as soon as it ends, while others are generated
        self.progress.phase("generate", 0, total)
        with self.progress.timed("generate"), self.judges.listening(rows) as on_finish:
            generate: Callable[..., list[list[Completion]]]
            if self.episodes is not None:
                assert settings.seed is not None
                play = self.episodes.open([self.rows[row] for row in rows], size, settings.seed, first)
                prompts, generate = play.prompts, play.generate
            else:
                prompts = [self.encode(self.rows[row]) for row in rows]
                requests = [
                    Request(ids, size, images=self.rows[row].images) for ids, row in zip(prompts, rows, strict=True)
                ]
                generate = partial(self.engine.generate, requests)
            found = generate(
                settings, on_finish=on_finish, on_progress=lambda done, _: self.progress.phase("generate", done, total)
            )
        return [RowCompletions(*each) for each in zip(rows, prompts, found, strict=True)]

    def settings(self, call: EngineCall) -> SamplingSettings:
        """The recipe's sampling settings with a seed for this call; no global random state is used."""
        # a row that is sampled twice in a step gets new samples
        seed = step_seed(self.recipe.train.seed, call.step) + call.number - 1
        if not self.engine.kind.has_own_seeds:  # each rank needs its own
            seed += 7919 * self.ranks.rank
        return sampling(self.recipe, seed)


def sampling(recipe: Recipe, seed: int | None = None) -> SamplingSettings:
    """How a recipe samples."""
    return SamplingSettings.of(recipe.sample, seed)


def step_seed(seed: int, step: int) -> int:
    """A seed that depends only on the recipe's seed and the number of finished steps."""
    # a hash of integers does not depend on PYTHONHASHSEED; every generator accepts 31 bits
    return hash((seed, step)) & 0x7FFFFFFF
