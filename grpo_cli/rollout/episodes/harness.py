"""Episodes that programs of others play: their requests, gathered into batches of our engine, and the rows that these become.

How this works. `HarnessPlay.generate` starts a program for each sample, some at a time, and takes what arrives at the endpoint. When every
program waits, or nothing new came for a while, `_turns` answers: each request is planned in its episode's tree, which
gives the very ids that the engine is fed, and what the engine samples goes into the tree with its log-probs before it becomes a
text. When a program has ended, its episode becomes a completion with a row for each history that it had. The seed of a request
comes from its episode, its ids and how often they were asked for, so that neither arrival nor neighbours enter.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.environments.endpoint.messages import Asked, Message, Reply, RequestRefused
from grpo_cli.environments.endpoint.server import EpisodeEndpoint, Ticket
from grpo_cli.environments.endpoint.tree import RowPlan, Tree
from grpo_cli.environments.harness import Harness, Running, scratch
from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.rollout.engine import (
    Branch,
    CacheSlot,
    Completion,
    Engine,
    Episode,
    OnFinish,
    OnProgress,
    Request,
    SamplingSettings,
    Turn,
)
from grpo_cli.rollout.episodes.chat import Chat
from grpo_cli.rollout.episodes.play import NUMBERS, Episodes, Timed, one_stream
from grpo_cli.rollout.episodes.running import mixed

log = logging.getLogger("grpo_verifiers")

POLL_S = 0.005
WIDER = 256
"""Tokens by which what the engine keeps of an episode grows."""


@dataclass(slots=True)
class LiveHarness:
    """One episode under way; `name` is its address at the endpoint, `slot` its place among those that run at the same time."""

    row: int
    sample: int
    seed: str
    name: str
    tree: Tree
    slot: int = 0
    running: Running | None = None
    waiting: list[Ticket] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    """How often a prompt was asked for, by a digest of its ids."""
    counts: Counter[str] = field(default_factory=Counter)
    sampled: int = 0
    is_cut: bool = False
    was_full: bool = False
    fault: Fault | None = None
    printed: str = ""
    outcome: float | None = None
    is_over: bool = False


class HarnessEpisodes:
    """Plays episodes of a recipe's `environment.harness`."""

    def __init__(
        self, spec: Environment, harness: Harness, policy: Policy, engine: Engine, timed: Timed = nullcontext
    ) -> None:
        """
        Raises:
            SetupError: the engine's samples have no seeds of their own.
        """
        if not engine.kind.has_own_seeds:
            raise one_stream(engine.kind.name)
        self.spec, self.harness, self.policy, self.engine, self.timed = spec, harness, policy, engine, timed
        self.chat = Chat(policy)

    def open(self, rows: Sequence[Row], size: int, seed: int, first: int = 0) -> HarnessPlay:
        """`size` episodes of each row, from sample `first` on.

        Raises:
            RecipeError: a row lacks a column that the program is passed.
        """
        return HarnessPlay(self, rows, size, seed, first)


def episodes_of(
    spec: Environment | None,
    worlds: Worlds | Harness | None,
    engine: Engine,
    policy: Policy,
    timed: Timed = nullcontext,
) -> Episodes | HarnessEpisodes | None:
    """What plays the episodes of a recipe whose environment was started; None for a recipe without one.

    Raises:
        SetupError: the engine, or the chat template, does not go on turn by turn.
    """
    if spec is not None and isinstance(worlds, Harness):
        return HarnessEpisodes(spec, worlds, policy, engine, timed)
    assert not isinstance(worlds, Harness)
    return Episodes.where_asked(spec, worlds, engine, policy, timed)


class HarnessPlay:
    """Episodes that were opened together."""

    def __init__(self, of: HarnessEpisodes, rows: Sequence[Row], size: int, seed: int, first: int) -> None:
        self.of, self.rows, self.first, self.number = of, rows, first, next(NUMBERS)
        self.prompts = [of.policy.encode(row) for row in rows]
        self.given = [of.harness.passed(row.fields, row.place) for row in rows]
        most = of.spec.endpoint.max_rows
        self.episodes = [
            LiveHarness(
                r,
                first + s,
                f"{seed}/{row.id}/{first + s}",
                f"{self.number}-{r}-{s}",
                Tree(of.chat.render, of.chat.suffix, most),
            )
            for r, row in enumerate(rows)
            for s in range(size)
        ]
        self.slots = min(of.harness.at_once, len(self.episodes))
        self.columns = 0

    def generate(
        self, settings: SamplingSettings, on_finish: OnFinish | None = None, on_progress: OnProgress | None = None
    ) -> list[list[Completion]]:
        """One completion an episode, by row.

        Raises:
            SetupError: a program cannot be started.
            whatever the engine raises: the programs are ended.
        """
        endpoint, total = self.of.harness.endpoint(self.of.policy.context), len(self.episodes)
        waiting, live, free = list(reversed(self.episodes)), dict[str, LiveHarness](), list(range(self.slots))
        with scratch() as folder:
            try:
                while waiting or live:
                    while waiting and free:
                        episode = waiting.pop()
                        episode.slot = free.pop()
                        live[episode.name] = episode
                        # one chance for a row's episodes, as worlds have it: what differs is what the policy does
                        of_row = episode.seed.rpartition("/")[0]
                        variables = endpoint.open(episode.name) | {"GRPO_SEED": str(mixed(of_row))}
                        root = Path(folder) / episode.name
                        episode.running = self.of.harness.launch(self.given[episode.row], variables, root)
                    with self.of.timed():
                        self._gather(endpoint, live)
                    self._turns(list(live.values()), settings)
                    for episode in [one for one in live.values() if one.is_over]:
                        self._close(endpoint, live.pop(episode.name))
                        free.append(episode.slot)
                        if on_progress:
                            on_progress(total - len(waiting) - len(live), total)
            except BaseException:
                for episode in live.values():
                    endpoint.end(episode.name, RequestRefused("the engine failed", status=503, code="engine_failed"))
                    if episode.running is not None:
                        episode.running.kill()
                raise
            self._score()
        found: list[list[Completion]] = [[] for _ in self.rows]
        for episode in self.episodes:
            completion = self._completion(episode)
            found[episode.row].append(completion)
            if on_finish:
                on_finish(episode.row, episode.sample - self.first, completion)
        return found

    def _gather(self, endpoint: EpisodeEndpoint, live: dict[str, LiveHarness]) -> None:
        """Until every live episode waits or has ended, or nothing arrived for `gather_ms` and something waits or has ended."""
        quiet_s, arrived = self.of.spec.endpoint.gather_ms / 1000, time.monotonic()
        looked = arrived
        while True:
            try:
                ticket = endpoint.arrived.get(timeout=POLL_S)
                # of an episode that is over meanwhile: it was refused as that ended
                if (episode := live.get(ticket.episode)) is not None:
                    episode.waiting.append(ticket)
                    arrived = time.monotonic()
                continue
            except queue.Empty:
                pass
            since, looked = looked, time.monotonic()
            for episode in live.values():
                assert episode.running is not None
                if episode.waiting:  # for us: its own time stands still
                    episode.running.ends += looked - since
                episode.is_over = episode.is_over or episode.running.is_over()
            idle = [episode.is_over or bool(episode.waiting) for episode in live.values()]
            if all(idle) or (any(idle) and time.monotonic() - arrived >= quiet_s):
                return

    def _turns(self, live: Sequence[LiveHarness], settings: SamplingSettings) -> None:
        """Answers what waits, one request an episode and call: the next of an episode may go on where this one ends."""
        while asking := [episode for episode in live if episode.waiting]:
            began = time.monotonic()
            calls: dict[tuple[tuple[str, ...], int], list[tuple[LiveHarness, Ticket, RowPlan, Request]]] = {}
            for episode in asking:
                ticket = episode.waiting.pop(0)
                try:
                    planned = self._planned(episode, ticket, settings)
                except RequestRefused as err:
                    ticket.settle(err)
                    continue
                if planned is not None:
                    limits, plan, request = planned
                    calls.setdefault(limits, []).append((episode, ticket, plan, request))
            columns = [len(request.ids) + limit for (_, limit), some in calls.items() for *_, request in some]
            # rounded up: an episode that grows by a turn must not make what the engine keeps anew
            self.columns = max(self.columns, -(-max(columns, default=0) // WIDER) * WIDER)
            for (stop, limit), some in calls.items():
                requests = [
                    replace(request, slot=CacheSlot(self.number, e.slot, self.slots, self.columns))
                    for e, _, _, request in some
                ]
                sampled = self.of.engine.generate(requests, replace(settings, max_tokens=limit, stop=stop))
                for (episode, ticket, plan, _), (completion,) in zip(some, sampled, strict=True):
                    self._take(episode, ticket, plan, completion)
            for episode in live:
                # the seconds in which the model writes are not the program's
                assert episode.running is not None
                episode.running.ends += time.monotonic() - began

    def _planned(
        self, episode: LiveHarness, ticket: Ticket, settings: SamplingSettings
    ) -> tuple[tuple[tuple[str, ...], int], RowPlan, Request] | None:
        """The stop texts and limit of the call that answers a request, with its plan; None where nothing is sampled for it.

        Raises:
            RequestRefused: the episode is over, or the context is full.
        """
        asked, spec = ticket.asked, self.of.spec
        if asked.only_counts:
            ids = self.of.chat.render(asked.messages, asked.tools)
            ticket.settle(Reply(Message("assistant"), "stop", ids, (), ()))
            return None
        if ticket.is_gone:
            episode.counts["cancelled"] += 1
            return None
        longest = spec.turn_tokens or settings.max_tokens
        if len(episode.turns) >= spec.max_turns or episode.sampled >= settings.max_tokens:
            episode.is_cut = True
            raise RequestRefused(self.of.harness.over, code="episode_over")
        try:
            plan = episode.tree.plan(asked.messages, asked.tools)
        except RequestRefused as err:
            episode.is_cut = episode.is_cut or err.code == "episode_over"
            raise
        prompt, context = plan.prompt_ids, self.of.policy.context
        used = 0 if plan.extends is None else len(prompt) - episode.tree.rows[plan.extends].start
        limit = min(longest, settings.max_tokens - max(used, episode.sampled), asked.limit or longest)
        if context is not None and len(prompt) + 1 > context:
            episode.tree.abort(plan)
            episode.was_full = True
            said = f"this model's maximum context length is {context} tokens, and the messages have {len(prompt)}"
            raise RequestRefused(said, code="context_length_exceeded")
        limit = limit if context is None else min(limit, context - len(prompt))
        if limit < 1:
            episode.tree.abort(plan)
            episode.is_cut = True
            raise RequestRefused(self.of.harness.over, code="episode_over")
        self._note_overridden(episode, asked, settings)
        digest = hashlib.blake2b(repr(prompt).encode(), digest_size=16).hexdigest()
        seed = mixed(episode.seed, digest, episode.seen[digest])
        stop, begun = (*settings.stop, *asked.stop), longest - limit
        # the engine has one limit a call: a shorter one counts the end of the prompt as begun. A stop text must not reach into it
        if not stop and len(prompt) > begun:
            at = len(prompt) - begun
            return (stop, longest), plan, Request(prompt[:at], 1, seed, tuple(prompt[at:]))
        return (stop, limit), plan, Request(prompt, 1, seed)

    def _take(self, episode: LiveHarness, ticket: Ticket, plan: RowPlan, sampled: Completion) -> None:
        """Puts what was sampled for a request into its episode, and answers."""
        if ticket.is_gone:
            episode.tree.abort(plan)
            episode.counts["cancelled"] += 1
            return
        reply, said = self.of.chat.reply(ticket.asked, plan.prompt_ids, sampled)
        number = episode.tree.commit(plan, sampled.token_ids, sampled.logps, said)
        digest = hashlib.blake2b(repr(plan.prompt_ids).encode(), digest_size=16).hexdigest()
        episode.seen[digest] += 1
        episode.sampled += len(sampled.token_ids)
        start, end = episode.tree.rows[number].spans[-1]
        # what was said to the model since its turn before in this row is what that turn led to
        before = next((i for i in range(len(episode.turns) - 1, -1, -1) if episode.turns[i].row == number), None)
        if before is not None:
            seen = "\n".join(message.text for message in plan.tail)
            episode.turns[before] = replace(episode.turns[before], observation=seen)
        calls = [f"{call.name}{call.arguments}" for call in reply.message.calls]
        text = "\n".join([*([reply.message.text] if reply.message.text or not calls else []), *calls])
        episode.turns.append(Turn(start, end, text=text, row=number))
        ticket.settle(reply)

    def _note_overridden(self, episode: LiveHarness, asked: Asked, settings: SamplingSettings) -> None:
        # a penalty of 0 is none, and a seed is the episode's own
        differ = [k for k, v in asked.sampling.items() if k != "seed" and v != getattr(settings, k, False)]
        for name in (*differ, *asked.ignored):
            episode.counts["overridden"] += 1
            if name not in self.of.harness.overridden:
                self.of.harness.overridden.add(name)
                log.warning("environment: the harness sets `%s`, and samples are drawn as the recipe says", name)

    def _close(self, endpoint: EpisodeEndpoint, episode: LiveHarness) -> None:
        """What became of an episode whose program has ended."""
        running = episode.running
        assert running is not None
        code = running.process.returncode if running.fault is None else None
        running.kill()
        retries, lost = endpoint.end(episode.name)
        episode.counts["retry"] += retries
        episode.printed = running.last_line()
        episode.is_cut = episode.is_cut or (bool(code) and episode.was_full)
        if running.fault is not None:
            episode.fault = running.fault
        elif code and not episode.is_cut:
            said = running.last_line("err")[:200]
            episode.fault = Fault(
                "harness_failed", f"the harness ended with code {code}" + (f": {said}" if said else "")
            )
        elif (failure := self.of.harness.failure(running)) is not None:
            episode.fault = failure
        elif lost:
            episode.fault = Fault("request_lost", f"{lost} requests of the harness got no answer")
        elif not episode.turns:
            episode.fault = Fault("no_request", "the harness ended without asking for a turn")

    def _score(self) -> None:
        whole = [episode for episode in self.episodes if episode.fault is None]
        if not self.of.harness.scores or not whole:
            return
        with self.of.timed():
            scores = self.of.harness.score(
                [
                    (self.rows[e.row].fields, e.running.folder, self._transcript(e))
                    for e in whole
                    if e.running is not None
                ]
            )
        for episode, score in zip(whole, scores, strict=True):
            if isinstance(score, Fault):
                episode.fault = score
            else:
                episode.outcome = score

    def _transcript(self, episode: LiveHarness) -> str:
        transcript = Episode(tuple(episode.turns), None).transcript
        return f"{transcript}\n[printed] {episode.printed}"

    def _completion(self, episode: LiveHarness) -> Completion:
        """The whole of an episode: its main row first, and the others that are learned from."""
        fault, scores = episode.fault, self.of.harness.scores
        reason, problem = ("", "") if fault is None else (fault.reason, fault.text)
        if scores and fault is None and episode.outcome is None:
            reason, problem = "no_score", f"`{self.of.harness.score_name}` returned None: no verdict"
        rows, every = episode.tree.rows, self.of.spec.endpoint.train_rows == "all"
        kept = [row for row in rows if every or row.is_main]
        untrained = sum(row.sampled for row in rows) - sum(row.sampled for row in kept)
        whys = Counter(row.why for row in rows if row.why)
        counts = {"requests": len(episode.turns), "rows": len(rows), "untrained": untrained, **whys, **episode.counts}
        record = Episode(
            tuple(episode.turns),
            None if fault is not None else episode.outcome,
            episode.is_cut,
            problem,
            reason,
            None if scores else episode.printed,
            is_lost=fault is not None,
            counts=counts,
        )
        made = partial(_row, finish="length" if episode.is_cut else "stop")
        if not kept:  # nothing was sampled: a row that counts for nothing
            prompt = self.prompts[episode.row]
            return Completion([prompt[-1]], [0.0], "stop", record, branch=Branch(prompt, ()))
        main, *others = (made(row) for row in kept)
        return replace(main, episode=record, more=tuple(others))


def _row(row: Any, finish: Any) -> Completion:
    branch = Branch(row.ids[: row.start], tuple(row.spans), row.parent, row.at, row.why)
    return Completion(row.ids[row.start :], row.logps, finish, branch=branch)
