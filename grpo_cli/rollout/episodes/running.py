"""One episode under way: how it begins, the turns it takes, and the completion that it becomes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.environments.pool import Fault, World
from grpo_cli.environments.step import Step
from grpo_cli.errors import DataError
from grpo_cli.rollout.engine import Completion, Episode, Turn


@dataclass(slots=True)
class LiveEpisode:
    """One episode under way: `row` and `sample` name it, `seen` is the state that the next turn sees."""

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
        """Which episode of its call it is."""
        return self.row, self.sample

    def cut(self) -> None:
        """The budget ends it."""
        self.is_over = self.is_cut = True

    def record(self, text: str, step: Step | None = None, penalty: float = 0.0) -> None:
        """Records the newest turn's text, and the environment's step; None where it took none."""
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
        """The whole of it; `score` is the environment's, of which each invalid action takes `penalty` off. With `has_calls` the
        turn without a call is the answer, and an episode that came to none has an empty one. With `pays_faults` a fault that
        the actions provoked is a limit that they burst: what was paid so far, 0 at most."""
        # no score is no verdict, never 0: a world that cannot judge must not teach
        outcome, reason, problem = None, "no_score", "the environment's `score` is None: no verdict"
        over_limit = False
        if isinstance(score, Fault):
            reason, problem = score.reason, score.text
            if pays_faults and score.provoked:
                outcome, over_limit = min(0.0, sum(turn.reward for turn in self.turns)), True
        elif score is not None:
            invalid = sum(not turn.valid for turn in self.turns)
            outcome, reason, problem = score - penalty * invalid, "", ""
        # only a turn that ended the episode is an answer: one that was cut came to none
        last = self.turns[-1] if self.turns else None
        answer = (last.text if last and last.done else "") if has_calls else None
        record = Episode(tuple(self.turns), outcome, self.is_cut, problem, reason, answer, over_limit)
        return Completion(self.ids, self.logps, "length" if self.is_cut else "stop", episode=record)


def mixed(*parts: object) -> int:
    """A seed of these parts alone, the same in every process and on every machine."""
    text = "/".join(map(str, parts)).encode()
    # seven bytes: every generator takes it as a positive number of 64 bits
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


# How an episode begins: the first observation of its world stands behind the row's last message of the user.


def same_observation(row: Row, first: Sequence[str | Fault]) -> str:
    """The first observation of the worlds of one row, which is one and the same.

    Raises:
        DataError: one could not begin, or they differ: the samples of a prompt would not be comparable.
    """
    for found in first:
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
    """The action that a world demonstrates in an episode of this row.

    Raises:
        DataError: it could not give one.
    """
    if isinstance(action, Fault):
        raise DataError(action.text, place=row.place, hint="fix the environment's `demonstrate`")
    return action


def refuse_begun(row: Row, tokens: int, budget: int, context: int | None) -> None:
    """Refuse a prompt of so many `tokens`, with the first observation of its world, that leaves no room for an episode.

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
    """The row with the first observation of its world behind its last message of the user."""
    if not text or row.messages is None:
        return row
    messages: list[Any] = [dict(message) for message in row.messages]
    # behind the user's last words, where the task stands; a row without any has only its last message
    at = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=len(messages) - 1)
    messages[at]["content"] = f"{messages[at]['content']}{text}"
    return replace(row, messages=messages, prompt=f"{row.prompt}{text}")
