"""One episode under way."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from grpo_cli.environments.pool import Fault, World
from grpo_cli.environments.step import Step
from grpo_cli.rollout.engine import Completion
from grpo_cli.rollout.episode import Episode, Turn


@dataclass(slots=True)
class LiveEpisode:
    """One episode under way: `row` and `sample` say which, `seen` is the state that the next turn sees."""

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

    def say(self, completion: Completion) -> None:
        """A turn of the model."""
        start, self.has_stopped = len(self.ids), completion.finish == "stop"
        self.ids += completion.token_ids
        self.logps += completion.logps
        self.turns.append(Turn(start, len(self.ids), state=self.seen))

    def hear(self, ids: Sequence[int]) -> None:
        """What stands between two turns."""
        self.ids += ids
        # place holders, so that ids and log-probs have one length: the mask keeps them out of every sum
        self.logps += [0.0] * len(ids)

    def cut(self) -> None:
        """The budget ends it."""
        self.is_over = self.is_cut = True

    def fail(self, fault: Fault) -> None:
        """The environment ends it, without a verdict."""
        self.is_over, self.fault = True, fault

    def note(self, text: str, step: Step | None = None, penalty: float = 0.0) -> None:
        """What the newest turn said, and what the environment made of it; None where it made nothing of it."""
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
        self, score: float | Fault | None, penalty: float, *, has_calls: bool = False
    ) -> Completion:
        """The whole of it; `score` is the environment's, of which each invalid action takes `penalty` off. With `has_calls` the
        turn without a call is the answer, and an episode that came to none has an empty one."""
        outcome, reason, problem = None, "no_score", "the environment's `score` is None: no verdict"
        if isinstance(score, Fault):
            reason, problem = score.reason, score.text
        elif score is not None:
            invalid = sum(not turn.valid for turn in self.turns)
            outcome, reason, problem = score - penalty * invalid, "", ""
        last = self.turns[-1] if self.turns else None
        answer = (last.text if last and last.done else "") if has_calls else None
        record = Episode(tuple(self.turns), outcome, self.is_cut, problem, reason, answer)
        return Completion(self.ids, self.logps, "length" if self.is_cut else "stop", episode=record)


def mixed(*parts: object) -> int:
    """A seed of these parts alone, the same in every process and on every machine."""
    text = "/".join(map(str, parts)).encode()
    # seven bytes: every generator takes it as a positive number of 64 bits
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
