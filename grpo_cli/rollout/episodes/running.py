"""One running episode: its beginning, its turns, and the resulting completion."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Fault, World
from grpo_cli.environments.step import Step
from grpo_cli.errors import DataError, SetupError
from grpo_cli.rollout.engine import Completion, Episode, Turn


@dataclass(slots=True)
class LiveEpisode:
    """One running episode: `row` and `sample` identify it, `seen` is the state before the next turn."""

    number: int
    """Its place in its play."""
    row: int
    sample: int
    world: World
    prompt: list[int]
    seen: str
    seed: str
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    fault: Fault | None = None
    has_stopped: bool = False
    is_over: bool = False
    is_cut: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Its number in its call."""
        return self.row, self.sample

    def cut(self) -> None:
        """The budget ends it."""
        self.is_over = self.is_cut = True

    def record(self, text: str, step: Step | None = None, penalty: float = 0.0) -> None:
        """Records the newest turn's text, and the environment's step (None if it took none)."""
        turn = replace(self.turns[-1], text=text)
        if step is not None:
            turn = replace(
                turn,
                observation=step.observation,
                reward=step.reward - (0.0 if step.valid else penalty),
                milestone=step.milestone,
                valid=step.valid,
                done=step.done,
            )
            self.seen = step.observation if step.state is None else step.state
        self.turns[-1] = turn

    def completion(
        self, score: float | Fault | None, penalty: float, *, has_calls: bool = False, pays_faults: bool = False
    ) -> Completion:
        """The record of the whole episode. `score` is the environment's; each invalid action subtracts `penalty`. With
        `has_calls` the turn without a call is the answer, which is empty if there is none. With `pays_faults` a fault
        that the actions provoked counts as exceeding a limit: the episode gets the rewards so far, but at most 0."""
        # no score means no verdict, never 0: nothing may be learned if the environment cannot judge
        outcome, reason, problem = None, "no_score", "the environment's `score` is None: no verdict"
        over_limit = False
        if isinstance(score, Fault):
            reason, problem = score.reason, score.text
            if pays_faults and score.provoked:
                outcome, over_limit = min(0.0, sum(turn.reward for turn in self.turns)), True
        elif score is not None:
            invalid = sum(not turn.valid for turn in self.turns)
            outcome, reason, problem = score - penalty * invalid, "", ""
        # only a turn that ended the episode is an answer; a truncated episode has none
        last = self.turns[-1] if self.turns else None
        answer = (last.text if last and last.done else "") if has_calls else None
        record = Episode(tuple(self.turns), outcome, self.is_cut, problem, reason, answer, over_limit)
        return Completion(self.ids, self.logps, "length" if self.is_cut else "stop", episode=record)


def mixed(*parts: object) -> int:
    """A seed that depends only on these parts, equal in every process and on every machine."""
    text = "/".join(map(str, parts)).encode()
    # seven bytes: every generator takes it as a positive number of 64 bits
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


# The beginning of an episode: the first observation is appended to the row's last user message.


def same_observation(row: Row, first: Sequence[str | Fault]) -> str:
    """The first observation of one row's environments, which must be the same for all.

    Raises:
        DataError: an environment could not begin, or the observations differ, so that samples would not be comparable.
        SetupError: the server that it runs on does not answer.
    """
    for found in first:
        if isinstance(found, Fault) and found.reason == "tool_server":
            raise SetupError(f"environment: {found.text}")
        if isinstance(found, Fault):
            raise DataError(found.text, place=row.place, hint="fix the row, or the environment's `reset`")
    other = next((text for text in first if text != first[0]), None)
    if other is not None:
        raise DataError(
            f"`reset` says different things for the same row and seed: {first[0]!r:.80}, {other!r:.80}",
            place=row.place,
            hint="draw all chance in `reset` from its `seed`",
        )
    return str(first[0]) if first else ""


def refuse_undemonstrated(row: Row, action: str | Fault) -> str:
    """The action that the environment demonstrates in an episode of this row.

    Raises:
        DataError: it could not give one.
    """
    if isinstance(action, Fault):
        raise DataError(action.text, place=row.place, hint="fix the environment's `demonstrate`")
    return action


def refuse_begun(row: Row, tokens: int, budget: int, context: int | None) -> None:
    """Refuse a prompt whose `tokens`, including the first observation, leave no room for an episode.

    Raises:
        DataError: prompt and `budget` are more than the model's `context`.
    """
    if context is not None and tokens + budget > context:
        raise DataError(
            f"the prompt has {tokens} tokens with what the environment says at the start; with {budget} of"
            f" `sample.max_tokens` that is more than the model's context of {context}",
            place=row.place,
            hint="lower `sample.max_tokens`, let `reset` say less, or take a model with a longer context",
        )


def with_observation(row: Row, text: str) -> Row:
    """The row with the first observation appended to its last user message."""
    if not text or row.messages is None:
        return row
    messages: list[Any] = [dict(message) for message in row.messages]
    # append to the last user message, which has the task; without one, to the last message
    at = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=len(messages) - 1)
    messages[at]["content"] = f"{messages[at]['content']}{text}"
    return replace(row, messages=messages, prompt=f"{row.prompt}{text}")
