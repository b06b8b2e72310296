"""The contract of a rollout engine. `logps` are always those of the *untruncated* distribution at the sampling
temperature (at temperature 1 when greedy), whatever top-k, top-p, min-p or a repetition penalty did to the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from grpo_cli.errors import SetupError
from grpo_cli.recipe.engines import EngineKind
from grpo_cli.rollout.episode import Episode, Turn

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.method import Sample

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class CacheSlot:
    """A place for what an engine computed of an episode, to go on from in its next turn: the `episode`-th of `episodes` that
    a `play` opened, of at most `columns` tokens with its prompt."""

    play: int
    episode: int
    episodes: int
    columns: int


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how many samples of it. `seed` None: derived from the settings' seed and the prompt itself.

    `prefix` are tokens that every one of these completions starts with: they count towards `max_tokens` and are not
    returned. Only an engine that `can_continue` goes on from them.
    """

    prompt_ids: list[int]
    n: int = 1
    seed: int | None = None
    prefix: tuple[int, ...] = ()
    slot: CacheSlot | None = None
    """For a turn of an episode, all requests of a call or none. An engine that keeps nothing computes the history anew: slower,
    and the same."""

    @property
    def ids(self) -> list[int]:
        """All that goes through the model before the first new token."""
        return [*self.prompt_ids, *self.prefix]


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled ids, the end token included when there is one; `finish` is "length" when `max_tokens` cut it.

    The first `kept` tokens were not generated but taken from an earlier completion (`reuse.py`). Where the model spoke in
    turns, `episode` says which tokens are its own.
    """

    token_ids: list[int]
    logps: list[float]
    finish: Finish
    kept: int = 0
    episode: Episode | None = None
    marks: tuple[Turn, ...] = ()
    """Parts of an answer of one turn that credit tells apart, all of its tokens in order."""

    @property
    def mask(self) -> list[int]:
        """1 for each token that the model generated, 0 for one that an environment put between its turns."""
        length = len(self.token_ids)
        return [1] * length if self.episode is None else self.episode.mask(length)

    @property
    def spoken(self) -> int:
        """Tokens that the model generated."""
        return len(self.token_ids) if self.episode is None else self.episode.spoken

    @property
    def invalid(self) -> int:
        """Turns of which its environment could make nothing."""
        return 0 if self.episode is None else sum(not turn.valid for turn in self.episode.turns)


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How to sample. temperature 0 is greedy; top_p 1, top_k 0, min_p 0, repetition_penalty 1 switch each rule off. A sample
    ends with an end token, at `max_tokens`, or with the token that completes one of the texts in `stop`."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    @classmethod
    def of(cls, sample: Sample, seed: int | None = None) -> SamplingSettings:
        """What a recipe's `sample` says."""
        return cls(
            max_tokens=sample.max_tokens,
            temperature=sample.temperature,
            top_p=sample.top_p,
            top_k=sample.top_k,
            min_p=sample.min_p,
            repetition_penalty=sample.repetition_penalty,
            seed=seed,
            stop=tuple(sample.stop),
        )

    @classmethod
    def measuring(cls, sample: Sample, seed: int) -> SamplingSettings:
        """The same for held-out rows: the policy's own distribution, whatever training leaves out of it."""
        return cls(sample.max_tokens, sample.temperature, seed=seed, stop=tuple(sample.stop))

    @property
    def greedy(self) -> bool:
        """The most likely token, no chance."""
        return self.temperature == 0

    @property
    def truncates(self) -> bool:
        """Whether the samples come from another distribution than the model's: off-policy when trained on."""
        return self.penalises or (not self.greedy and (self.top_p < 1 or self.top_k > 0 or self.min_p > 0))

    @property
    def penalises(self) -> bool:
        """Whether tokens already in the sequence are made less likely."""
        return self.repetition_penalty != 1


OnFinish = Callable[[int, int, Completion], None]
"""(request index, sample index, completion), as soon as that sample ends."""
OnProgress = Callable[[int, int], None]
"""(samples finished, samples in all), at most a few times a second's worth of tokens."""


class Engine(Protocol):
    """Generates from a policy's weights; what it can do are the fields of its kind."""

    @property
    def kind(self) -> EngineKind: ...

    def generate(
        self,
        requests: Sequence[Request],
        settings: SamplingSettings,
        on_finish: OnFinish | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[list[Completion]]:
        """Completions in the order of the requests, `n` for each."""

    def release(self) -> None:
        """Gives back what is kept between calls (the key-value cache, captured graphs)."""


class CannotDrive(SetupError):
    """The engine `name` does not drive this model, for `reason`."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"the engine `{name}` cannot drive this model: {reason}", hint="set `sample.engine: auto`"
        )
        self.reason = reason
