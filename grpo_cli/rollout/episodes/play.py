"""Episodes of many turns: all that run take a turn at once, then the environment answers each, until none is left.

    ids = prompt | a1 | o1 | a2 | o2 | … | an        the model's turns, and the observations between them

Ids are appended and never encoded again. Each request has a seed of row, sample and turn alone, so that an episode is the
same whatever plays next to it, on one process or many. The last observation is never appended: an episode ends on a turn.

How this works: `Episodes.open` starts a world for each sample and encodes prompts with their first observations. `Play.generate`
then loops over turns: `_ask` generates one turn of each live episode, `_act` hands the turns to the worlds and appends what they
answer; at the end it asks the worlds for scores. `demonstrations` plays the same with the world's own actions.
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
"""A turn of each of these episodes, by its request."""


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
        """For a recipe with an environment, whose worlds have started; None for another.

        Raises:
            SetupError: the engine, or the chat template, does not go on turn by turn.
        """
        if spec is None or worlds is None:
            return None
        return cls(spec, worlds, policy, suffixes_of(spec, policy), with_engine(engine), timed)

    def open(self, rows: Sequence[Row], size: int, seed: int, first: int = 0) -> Play:
        """`size` episodes of each row, from sample `first` on, with the first observations of their worlds.

        Raises:
            DataError: a row that the environment cannot begin with, or whose prompt leaves no room.
        """
        # of the row, not of its place in the step: the same world whatever rows stand next to it
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
    """A turn of the model: its text, the action that the environment is handed, and the names of the tools it calls."""

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
    """Which play of this process it is."""
    budget: int = 0

    @property
    def prompts(self) -> list[list[int]]:
        """The prompt of each row, with the first observation of its world."""
        found = {episode.row: episode.prompt for episode in self.running}
        return [found[r] for r in range(len(self.rows))]

    def generate(
        self, settings: SamplingSettings, on_finish: OnFinish | None = None, on_progress: OnProgress | None = None
    ) -> list[list[Completion]]:
        """One completion an episode, by row.

        Raises:
            DataError: a prompt and an episode do not fit the model's context.
        """
        self.budget = settings.max_tokens
        context, budget = self.of.policy.context, self.budget
        for row, prompt in zip(self.rows, self.prompts, strict=True):
            refuse_begun(row, len(prompt), budget, context)
        total, done = len(self.running), 0
        for turn in range(self.of.spec.max_turns):
            # all live episodes take a turn at once: the engine's batch is as large as it can be
            live = [episode for episode in self.running if not episode.is_over]
            if not live:
                break
            longest = self.of.spec.turn_tokens or settings.max_tokens
            room = [(e, settings.max_tokens - len(e.ids)) for e in live]
            wide = replace(settings, max_tokens=longest)
            # those that are near the end of their budget in a call of their own: their turns are shorter
            self._ask([e for e, left in room if left >= longest], turn, wide, is_whole=False)
            self._ask([e for e, left in room if left < longest], turn, settings, is_whole=True)
            for episode in live:
                # a turn that ended by itself at the very limit is still an answer
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
        """`is_whole`: the limit of tokens is that of the episode, not of the turn."""
        if not some:
            return
        # the longest that any of them may become: a cache that is made once holds them to their end
        columns = max(map(len, self.prompts)) + self.budget
        requests = [
            Request(
                e.prompt if is_whole else e.prompt + e.ids,
                1,
                # never of the call: another episode that ends early must not change this one's chance
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
            # with the state before it, which credit for turns compares
            episode.turns.append(Turn(start, len(episode.ids), state=episode.seen))

    def _act(self, live: Sequence[LiveEpisode], turn: int, budget: int) -> None:
        """What the environment makes of the newest turn of each; a turn that the budget cut off is not shown to it."""
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
        # in one call: the worlds step in processes of their own, next to each other
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
            # room for one token of the next turn at least; else this one was the last
            if len(episode.ids) + len(suffix) + 1 > budget:
                episode.cut()
            else:
                episode.ids += suffix
                # place holders, so that ids and log-probs have one length: the mask keeps them out of every sum
                episode.logps += [0.0] * len(suffix)


def suffixes_of(spec: Environment, policy: Policy) -> TurnSuffixes:
    """What stands between the turns of this policy.

    Raises:
        SetupError: its chat template does not go on turn by turn.
    """
    name = str(getattr(policy.model, "name_or_path", "")) or "the model"
    return TurnSuffixes.of(
        policy.tokenizer, policy.end_ids, spec.speaks_as, name, policy.chat, has_calls=spec.has_calls
    )


def one_stream(engine: str) -> SetupError:
    """The error where an engine's samples have no seeds of their own."""
    return SetupError(
        f"the engine `{engine}` draws all samples from one stream, so an episode would differ with its neighbours",
        hint="only the engine `graph` and vLLM in the same process play episodes, and `graph` does not drive this model",
    )


def with_engine(engine: Engine) -> TakeTurns:
    """Turns of the model, generated by an engine.

    Raises:
        SetupError: its samples have no seeds of their own.
    """
    if not engine.kind.has_own_seeds:
        raise one_stream(engine.kind.name)

    return lambda _, requests, settings: [completion for (completion,) in engine.generate(requests, settings)]


# Episodes in which the environment itself acts: demonstrations for a warm-up, in the very tokens of an episode.

AT_ONCE = 512
"""Episodes that are played at the same time."""


def demonstrations(
    spec: Environment, worlds: Worlds, policy: Policy, rows: Sequence[Row], seed: int, budget: int
) -> list[WarmupText]:
    """One episode a row, of at most `budget` tokens; the environment's tokens in it are not imitated.

    Raises:
        RecipeError: the environment has no `demonstrate`.
        DataError: a row that it cannot begin with, or show.
    """
    worlds.refuse_silent()
    suffixes = suffixes_of(spec, policy)

    def show(some: Sequence[LiveEpisode], requests: Sequence[Request], settings: SamplingSettings) -> list[Completion]:
        shown: list[Completion] = []
        actions = worlds.demonstrate([e.world for e in some])
        for episode, request, action in zip(some, requests, actions, strict=True):
            text = refuse_undemonstrated(part[episode.row], action)
            ids = [*policy.tokenizer(text, add_special_tokens=False).input_ids, suffixes.closing]
            # as an engine counts: the prefix is part of the limit
            room = settings.max_tokens - len(request.prefix)
            # no policy gave it a log-prob, and imitation needs none
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
