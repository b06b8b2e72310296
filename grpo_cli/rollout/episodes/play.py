"""Plays episodes of many turns: all running episodes take a turn at once, then their environments answer, until all
have ended.

    ids = prompt | a1 | o1 | a2 | o2 | … | an        the model's turns, and the observations between them

Ids are appended and never encoded again. Each request's seed depends only on row, sample and turn, so an episode does
not depend on the others, or on the number of processes. The last observation is never appended: an episode ends with a
turn of the model.

How this works: `Episodes.open` starts a world for each sample and encodes prompts with their first observations. `Play.generate`
then loops over turns: `_ask` generates one turn of each running episode, `_act` sends the turns to the environments and
appends their answers. At the end the environments return scores. `demonstrations` plays episodes with the environment's
own actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.environments.tools.calls import as_action, read_calls
from grpo_cli.errors import SetupError
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.turns import TurnSuffixes
from grpo_cli.policy.warmup import WarmupText
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.rollout.engine import CacheSlot, Completion, Engine, OnFinish, OnProgress, Request, SamplingSettings, Turn
from grpo_cli.rollout.episodes.running import (
    LiveEpisode,
    mixed,
    refuse_begun,
    refuse_undemonstrated,
    same_observation,
    with_observation,
)

NUMBERS = count()
Timed = Callable[[], AbstractContextManager[None]]
"""Counts the seconds that environments take."""
TakeTurns = Callable[[Sequence[LiveEpisode], Sequence[Request], SamplingSettings], list[Completion]]
"""Generates a turn for each of these requests."""


class Episodes:
    """Plays episodes of a recipe's environment; `take_turns` generates the model's turns."""

    def __init__(
        self,
        spec: Environment,
        worlds: Worlds,
        policy: Policy,
        suffixes: TurnSuffixes,
        take_turns: TakeTurns,
        timed: Timed = nullcontext,
    ) -> None:
        self.spec, self.worlds, self.policy, self.suffixes = spec, worlds, policy, suffixes
        self.take_turns, self.timed = take_turns, timed

    @classmethod
    def where_asked(
        cls, spec: Environment | None, worlds: Worlds | None, engine: Engine, policy: Policy, timed: Timed = nullcontext
    ) -> Episodes | None:
        """The player for a recipe with an environment, which has been started; None for other recipes.

        Raises:
            SetupError: the engine or the chat template cannot continue turn by turn.
        """
        if spec is None or worlds is None:
            return None
        return cls(spec, worlds, policy, suffixes_of(spec, policy), with_engine(engine), timed)

    def open(self, rows: Sequence[Row], size: int, seed: int, first: int = 0) -> Play:
        """`size` episodes of each row, from sample `first` on, with the first observations of their worlds.

        Raises:
            DataError: a row that the environment cannot begin with, or whose prompt leaves no room.
        """
        # seed by the row, not by its index in the step: the environment must not depend on other rows
        seeds = [mixed(seed, row.id) for row in rows]
        with self.timed():
            opened = self.worlds.open(
                [(row.fields, number) for row, number in zip(rows, seeds, strict=True) for _ in range(size)]
            )
        running: list[LiveEpisode] = []
        for r, row in enumerate(rows):
            # a row's episodes lie side by side, in the order of `open`
            mine = opened[r * size : (r + 1) * size]
            seen = same_observation(row, [found for _, found in mine])
            prompt = self.policy.encode(with_observation(row, seen))
            running += [
                LiveEpisode(len(running) + s, r, first + s, world, prompt, seen, f"{seed}/{row.id}/{first + s}")
                for s, (world, _) in enumerate(mine)
            ]
        return Play(self, rows, running, first)


@dataclass(frozen=True, slots=True)
class Act:
    """A turn of the model: its text, the action for the environment, and the names of the tools it calls."""

    text: str
    action: str
    calls: tuple[str, ...] = ()


@dataclass(slots=True)
class Play:
    """Episodes that were opened together."""

    of: Episodes
    rows: Sequence[Row]
    running: list[LiveEpisode]
    first: int
    number: int = field(default_factory=NUMBERS.__next__)
    """The number of this play in the process."""
    budget: int = 0

    @property
    def prompts(self) -> list[list[int]]:
        """The prompt of each row, with the first observation of its world."""
        found = {episode.row: episode.prompt for episode in self.running}
        return [found[r] for r in range(len(self.rows))]

    def generate(
        self, settings: SamplingSettings, on_finish: OnFinish | None = None, on_progress: OnProgress | None = None
    ) -> list[list[Completion]]:
        """The completions of all episodes, grouped by row.

        Raises:
            DataError: a prompt and an episode do not fit the model's context.
        """
        self.budget = settings.max_tokens
        context, budget = self.of.policy.context, self.budget
        for row, prompt in zip(self.rows, self.prompts, strict=True):
            refuse_begun(row, len(prompt), budget, context)
        total, done = len(self.running), 0
        for turn in range(self.of.spec.max_turns):
            # all running episodes take a turn at once, for the largest batch in the engine
            live = [episode for episode in self.running if not episode.is_over]
            if not live:
                break
            longest = self.of.spec.turn_tokens or settings.max_tokens
            room = [(e, settings.max_tokens - len(e.ids)) for e in live]
            wide = replace(settings, max_tokens=longest)
            # episodes near the end of their budget get a separate call, because their turns are shorter
            self._ask([e for e, left in room if left >= longest], turn, wide, is_whole=False)
            self._ask([e for e, left in room if left < longest], turn, settings, is_whole=True)
            for episode in live:
                # a turn that ends exactly at the limit is still an answer
                if len(episode.ids) >= settings.max_tokens and not episode.has_stopped:
                    episode.cut()
            self._act(live, turn, settings.max_tokens)
            now = sum(episode.is_over for episode in self.running)
            if on_progress and now > done:
                on_progress(now, total)
            done = now
        # a world that has failed has no score
        whole = [episode for episode in self.running if episode.fault is None]
        with self.of.timed():
            judged = self.of.worlds.score([episode.world for episode in whole])
        scores: dict[tuple[int, int], float | Fault | None] = {
            episode.place: score for episode, score in zip(whole, judged, strict=True)
        }
        spec = self.of.spec
        penalty, calls, pays = spec.invalid_penalty, spec.has_calls, spec.over_limit == "least"
        found: list[list[Completion]] = [[] for _ in self.rows]
        for episode in self.running:
            score = scores.get(episode.place, episode.fault)
            completion = episode.completion(score, penalty, has_calls=calls, pays_faults=pays)
            found[episode.row].append(completion)
            if on_finish:
                on_finish(episode.row, episode.sample - self.first, completion)
        return found

    def _ask(self, some: Sequence[LiveEpisode], turn: int, settings: SamplingSettings, *, is_whole: bool) -> None:
        """`is_whole`: the token limit is that of the episode, not of the turn."""
        if not some:
            return
        # the greatest possible length, so that the cache is created once and holds them to the end
        columns = max(map(len, self.prompts)) + self.budget
        requests = [
            Request(
                e.prompt if is_whole else e.prompt + e.ids,
                1,
                # never seed by the call: this episode must not depend on when others end
                mixed(e.seed, turn),
                tuple(e.ids) if is_whole else (),
                CacheSlot(self.number, e.number, len(self.running), columns),
            )
            for e in some
        ]
        for episode, completion in zip(some, self.of.take_turns(some, requests, settings), strict=True):
            start, episode.has_stopped = len(episode.ids), completion.finish == "stop"
            episode.ids += completion.token_ids
            episode.logps += completion.logps
            # with the state before the turn, which turn credit compares
            episode.turns.append(Turn(start, len(episode.ids), state=episode.seen))

    def _act(self, live: Sequence[LiveEpisode], turn: int, budget: int) -> None:
        """Send the newest turn of each episode to its environment; a turn that the budget cut off is not sent."""
        turns, form = [e.ids[e.turns[-1].start :] for e in live], self.of.suffixes.form
        acts = [Act(text, text) for text in self.of.policy.decode(turns)]
        if form is not None:
            called = [read_calls(whole, form) for whole in self.of.policy.decode_whole(turns)]
            acts = [
                Act(act.text, as_action(calls), tuple(call.name or "tool" for call in calls))
                for act, calls in zip(acts, called, strict=True)
            ]
        acting = [(e, act) for e, act in zip(live, acts, strict=True) if not e.is_over]
        for episode, act in zip(live, acts, strict=True):
            episode.record(act.text)
        # one call for all: the environments step in parallel, in processes of their own
        with self.of.timed():
            steps = self.of.worlds.step([(e.world, act.action) for e, act in acting])
        for (episode, act), step in zip(acting, steps, strict=True):
            if isinstance(step, Fault):
                # the environment ends it, without a verdict
                episode.is_over, episode.fault = True, step
                continue
            episode.record(act.text, step, self.of.spec.invalid_penalty)
            if step.done or turn + 1 == self.of.spec.max_turns:
                episode.is_over = True
                continue
            answered = tuple(zip(act.calls, step.parts, strict=True)) if act.calls else step.observation
            suffix = self.of.suffixes(answered, episode.ids[-1])
            # unless there is room for at least one token of the next turn, this turn was the last
            if len(episode.ids) + len(suffix) + 1 > budget:
                episode.cut()
            else:
                episode.ids += suffix
                # placeholders, so that ids and log-probs have the same length; the mask excludes them from every sum
                episode.logps += [0.0] * len(suffix)


def suffixes_of(spec: Environment, policy: Policy) -> TurnSuffixes:
    """The token ids between turns for this policy.

    Raises:
        SetupError: its chat template cannot continue turn by turn.
    """
    name = str(getattr(policy.model, "name_or_path", "")) or "the model"
    return TurnSuffixes.of(
        policy.tokenizer, policy.end_ids, spec.speaks_as, name, policy.chat, has_calls=spec.has_calls
    )


def one_stream(engine: str) -> SetupError:
    """The error for an engine that cannot seed each sample."""
    return SetupError(
        f"the engine `{engine}` draws all samples from one stream, so an episode would differ with its neighbours",
        hint="only the engine `graph` and vLLM in the same process play episodes, and `graph` does not drive this model",
    )


def with_engine(engine: Engine) -> TakeTurns:
    """Turns of the model, generated by an engine.

    Raises:
        SetupError: the engine cannot seed each sample.
    """
    if not engine.kind.has_own_seeds:
        raise one_stream(engine.kind.name)

    return lambda _, requests, settings: [completion for (completion,) in engine.generate(requests, settings)]


# Episodes in which the environment acts itself: demonstrations for a warm-up, tokenised like sampled episodes.

AT_ONCE = 512
"""Number of episodes played at the same time."""


def demonstrations(
    spec: Environment, worlds: Worlds, policy: Policy, rows: Sequence[Row], seed: int, budget: int
) -> list[WarmupText]:
    """One episode a row, of at most `budget` tokens; the environment's tokens in it are not imitated.

    Raises:
        RecipeError: the environment has no `demonstrate`.
        DataError: the environment cannot begin with a row, or cannot demonstrate it.
    """
    worlds.refuse_silent()
    suffixes = suffixes_of(spec, policy)

    def show(some: Sequence[LiveEpisode], requests: Sequence[Request], settings: SamplingSettings) -> list[Completion]:
        shown: list[Completion] = []
        actions = worlds.demonstrate([e.world for e in some])
        for episode, request, action in zip(some, requests, actions, strict=True):
            text = refuse_undemonstrated(part[episode.row], action)
            ids = [*policy.tokenizer(text, add_special_tokens=False).input_ids, suffixes.closing]
            # as in an engine, the prefix counts towards the limit
            room = settings.max_tokens - len(request.prefix)
            # no policy sampled these tokens, and imitation needs no log-probs
            shown.append(Completion(ids[:room], [0.0] * len(ids[:room]), "stop"))
        return shown

    episodes = Episodes(spec, worlds, policy, suffixes, show)
    found = []
    for at in range(0, len(rows), AT_ONCE):
        part = rows[at : at + AT_ONCE]
        play = episodes.open(part, 1, seed)
        played = play.generate(SamplingSettings(budget))
        for prompt, (completion,) in zip(play.prompts, played, strict=True):
            found.append(WarmupText(prompt, completion.token_ids, completion.mask))
    return found
