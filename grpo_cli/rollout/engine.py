"""The contract of a rollout engine. `logps` are always those of the *untruncated* distribution at the sampling
temperature (at temperature 1 when greedy), even if top-k, top-p, min-p or a repetition penalty restricted the choice.

How this works: an engine takes `Request`s (prompt, number of samples, perhaps a seed and tokens to go on from) and
`SamplingSettings`, refuses invalid calls (`check_settings`, `check_requests`), and returns a `Completion` for each
sample; a completion of an environment's episode carries the record of its turns (`Episode`). `EngineKind` describes the
abilities of an engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from grpo_cli.errors import DataError, Mistake, RecipeError, SetupError
from grpo_cli.recipe.engines import EngineKind
from grpo_verifiers.verifier import Played

if TYPE_CHECKING:
    from grpo_cli.data.images import RowImage
    from grpo_cli.recipe.sections.method import Sample


# The record of one episode: the data of a completion of many turns besides its tokens.


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the model, and the environment's response."""

    start: int
    end: int
    """The model's tokens of this turn, end token included: [start, end) of the completion's tokens."""
    state: str = ""
    """The state *before* this turn, as text that is equal for equal states: the environment's `state`, else the
    observation before the action (turn 0: the result of `reset`)."""
    text: str = ""
    """The action as the environment received it."""
    observation: str = ""
    """The environment's answer. That of the last turn is only here, not among the tokens."""
    reward: float = 0.0
    """The reward of the step, minus the penalty of an invalid action."""
    milestone: str | None = None
    """The milestone that this turn reached, if any."""
    valid: bool = True
    """False if the action had no meaning to the environment."""
    done: bool = False
    """Whether the environment ended the episode."""
    planned: int = 0
    """Number of tokens at its start that are a plan, or open a thinking; only set if credit treats them separately."""
    value: float | None = None
    """The chance of a right answer before it, as the policy gives it; only where credit asks for it."""
    row: int = 0
    """Which row of the episode it stands in, where a harness has rewritten the history."""

    @property
    def tokens(self) -> int:
        """Tokens that the model generated in it."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Episode:
    """The turns of one completion. `outcome` is any finite number, minus penalties; None is no verdict, never 0."""

    turns: tuple[Turn, ...]
    outcome: float | None
    truncated: bool = False
    """Whether the token budget ended it, not the environment or `max_turns`."""
    problem: str = ""
    """Why there is no verdict, or why it is `over_limit`, in one line."""
    reason: str = ""
    """The same as a short stable code."""
    answer: str | None = None
    """The judged text of an episode with tools: the turn without a call. None: the whole transcript is judged."""
    over_limit: bool = False
    """Whether its actions exceeded a limit of the environment, or broke it."""
    is_lost: bool = False
    """It was not played to its end, so that nothing in it is judged."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What an endpoint counted of it."""

    @property
    def judged(self) -> str:
        """What verifiers read of it."""
        return self.transcript if self.answer is None else self.answer

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the model generated."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def played(self) -> Played:
        """The result of the episode that a verifier gets."""
        return Played(self.outcome, self.reason, self.problem, self.over_limit, self.is_lost)

    @property
    def transcript(self) -> str:
        """The episode as text: each turn under its author."""
        lines = []
        for turn in self.turns:
            lines.append(f"[assistant] {turn.text}")
            if turn.observation:
                lines.append(f"[environment] {turn.observation}")
        return "\n".join(lines)

    def mask(self, length: int) -> list[int]:
        """1 for each of the completion's `length` tokens that the model generated, 0 for the environment's."""
        # observations between turns were not sampled: their log-probs must not enter a loss
        return spanned([(turn.start, turn.end) for turn in self.turns], length)


def spanned(spans: Sequence[tuple[int, int]], length: int) -> list[int]:
    """1 in these spans of `length` places, 0 elsewhere."""
    mask = [0] * length
    for start, end in spans:
        mask[start:end] = [1] * (end - start)
    return mask


Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Mix:
    """How inputs are mixed while sampling, as in `sample.mix`."""

    rate: float
    neighbours: int = 2
    until: str = ""
    written: Literal["sampled", "anchor"] = "sampled"


@dataclass(frozen=True, slots=True)
class Mixture:
    """What went into the model for the token at place `at` of a completion: a mean over the embeddings of `members`."""

    at: int
    members: tuple[int, ...]
    weights: tuple[float, ...]
    is_forced: bool = False
    """The token itself is the likeliest one, written and not drawn."""


@dataclass(frozen=True, slots=True)
class CacheSlot:
    """A slot for an episode's keys and values, which its next turn continues from: the `episode`-th of `episodes` in a
    `play`, with at most `columns` tokens including the prompt."""

    play: int
    episode: int
    episodes: int
    columns: int


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the number of its samples. `seed` None: derived from the settings' seed and the prompt.

    Every completion starts with the tokens `prefix`, which count towards `max_tokens` and are not returned.
    """

    prompt_ids: list[int]
    n: int = 1
    seed: int | None = None
    prefix: tuple[int, ...] = ()
    slot: CacheSlot | None = None
    """Set for turns of episodes, in all requests of a call or in none. An engine without such a cache recomputes the
    history, with the same result."""
    images: tuple[RowImage, ...] = ()
    """What the image tokens of the prompt stand for."""

    @property
    def ids(self) -> list[int]:
        """All tokens that go through the model before the first new token."""
        return [*self.prompt_ids, *self.prefix]


@dataclass(frozen=True, slots=True)
class Branch:
    """A row of an episode whose requests a harness wrote: its own prompt, and the `spans` of its tokens that the model generated.
    `why` it began behind `at` messages that it shares with the row `parent`."""

    prompt_ids: list[int]
    spans: tuple[tuple[int, int], ...]
    parent: int | None = None
    at: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled ids, the end token included when there is one; `finish` is "length" when `max_tokens` cut it.

    For a completion in turns, `episode` records which tokens the model generated.
    """

    token_ids: list[int]
    logps: list[float]
    finish: Finish
    episode: Episode | None = None
    marks: tuple[Turn, ...] = ()
    """Parts of a one-turn answer that get separate credit; in order they contain all of its tokens."""
    mixtures: tuple[Mixture, ...] = ()
    """The tokens whose input was mixed, in order."""
    branch: Branch | None = None
    """Only of a harness's episode, whose main row this is."""
    more: tuple[Completion, ...] = ()
    """The episode's further rows, each with its branch."""

    @property
    def rows(self) -> tuple[Completion, ...]:
        """What the update reads of it: the completion itself, but for an episode of several rows."""
        return self, *self.more

    @property
    def mask(self) -> list[int]:
        """1 for each token that the model drew, 0 for one that an environment put between its turns, or that was written undrawn."""
        length = len(self.token_ids)
        if self.branch is not None:
            return spanned(self.branch.spans, length)
        mask = [1] * length if self.episode is None else self.episode.mask(length)
        for one in self.mixtures:
            mask[one.at] = int(not one.is_forced)
        return mask

    @property
    def is_drawn(self) -> bool:
        """Whether the model drew all of its tokens."""
        return self.episode is None and self.branch is None and not any(one.is_forced for one in self.mixtures)

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the model generated."""
        return len(self.token_ids) if self.episode is None else self.episode.sampled_tokens

    @property
    def invalid(self) -> int:
        """Number of turns whose action had no meaning to the environment."""
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
    mix: Mix | None = None

    @classmethod
    def of(cls, sample: Sample, seed: int | None = None) -> SamplingSettings:
        """The settings of a recipe's `sample`."""
        return cls(
            max_tokens=sample.max_tokens,
            temperature=sample.temperature,
            top_p=sample.top_p,
            top_k=sample.top_k,
            min_p=sample.min_p,
            repetition_penalty=sample.repetition_penalty,
            seed=seed,
            stop=tuple(sample.stop),
            mix=Mix(m.rate, m.neighbours, m.until, m.written) if (m := sample.mix) and sample.mixed else None,
        )

    @classmethod
    def measuring(cls, sample: Sample, seed: int) -> SamplingSettings:
        """The settings for held-out rows: the policy's full distribution, without the truncation used in training."""
        # no truncation and no penalty: held-out scores are compared between recipes that differ in them
        return cls(sample.max_tokens, sample.temperature, seed=seed, stop=tuple(sample.stop))

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0

    @property
    def truncates(self) -> bool:
        """Whether samples come from another distribution than the model's, so that training on them is off-policy."""
        # truncation never drops the likeliest token, which greedy takes; a penalty can change which one that is
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
    """Generates from a policy's weights; the fields of its kind describe its abilities."""

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
        """Frees the memory kept between calls (the key-value cache, captured graphs)."""


class CannotDrive(SetupError):
    """The engine `name` does not drive this model, for `reason`."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the engine `{name}` cannot drive this model: {reason}", hint="set `sample.engine: auto`")
        self.reason = reason


# Checks of a call before any work: an error here names the request; a later one would lose a step.

NOT_FINITE = "the model's logits are not finite"
NOT_FINITE_HINT = (
    "its weights are broken: start anew with a lower `train.lr`, from a good checkpoint as `model` if you like"
)


def check_settings(settings: SamplingSettings) -> None:
    """Raises RecipeError with every invalid sampling value."""
    s = settings
    rules = [
        ("max_tokens", s.max_tokens, s.max_tokens >= 1, "at least 1"),
        ("temperature", s.temperature, math.isfinite(s.temperature) and s.temperature >= 0, "0 (greedy) or more"),
        ("top_p", s.top_p, 0 < s.top_p <= 1, "above 0, at most 1"),
        ("top_k", s.top_k, s.top_k >= 0, "0 (off) or more"),
        ("min_p", s.min_p, 0 <= s.min_p <= 1, "from 0 to 1"),
        ("repetition_penalty", s.repetition_penalty, 0 < s.repetition_penalty < math.inf, "above 0"),
    ]
    wrong = [
        Mistake("", f"`sample.{key}` is {value}; it must be {bound}") for key, value, fits, bound in rules if not fits
    ]
    if wrong:
        raise RecipeError(wrong)


def check_requests(
    requests: Sequence[Request], settings: SamplingSettings, *, context: int | None, vocabulary: int
) -> None:
    """Raises DataError with every prompt that is empty, too long for the model's context, or outside its vocabulary."""
    # report all of them, so that the data set can be corrected at once
    wrong: list[Mistake] = []
    too_long = False
    for index, request in enumerate(requests):
        place, length = f"prompt {index}", len(request.prompt_ids)
        if request.n < 1:
            wrong.append(Mistake(place, f"asks for {request.n} samples"))
        # a prefix counts towards `max_tokens`
        if len(request.prefix) >= settings.max_tokens:
            begun = f"{len(request.prefix)} of {settings.max_tokens} tokens"
            wrong.append(Mistake(place, f"has begun with {begun}: nothing is left to sample"))
        if not length:
            wrong.append(Mistake(place, "is empty: there is no token to go on from"))
        # on CUDA an index outside the embedding breaks the process's context, and the error shows at a later kernel
        elif min(request.ids) < 0 or max(request.ids) >= vocabulary:
            wrong.append(Mistake(place, f"has token ids outside the model's vocabulary of {vocabulary}"))
        # check the most that it may need before the step: a cache that overflows later would lose samples
        if context is not None and length + settings.max_tokens > context:
            too_long = True
            wrong.append(
                Mistake(
                    place, f"{length} tokens and {settings.max_tokens} new ones exceed the model's context of {context}"
                )
            )
    if wrong:
        hint = "lower `sample.max_tokens`, or drop long prompts with `data.max_prompt_tokens`" if too_long else ""
        raise DataError(wrong, hint=hint)
