"""The record of one episode: what a completion of many turns is beside its tokens.

One completion is one whole episode: its `token_ids` are a1 | o1 | a2 | o2 | … | an, model turns with what the environment
said between them; the last observation is never appended. `Completion.logps` holds 0.0 at the environment's places.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_verifiers.verifier import Played


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the model, and what the environment made of it."""

    start: int
    end: int
    """The model's tokens of this turn, end token included: [start, end) of the completion's tokens."""
    state: str = ""
    """What this turn *saw*, as text that is equal where states are: the environment's `state`, else the observation before
    the action (turn 0: what `reset` said). Never what the action led to."""
    text: str = ""
    """The action as the environment was handed it."""
    observation: str = ""
    """What the environment answered; of the last turn it stands here only, not among the tokens."""
    reward: float = 0.0
    """What the step paid, less the penalty of an invalid action."""
    milestone: str | None = None
    """The milestone that this turn reached, if any."""
    valid: bool = True
    """False where the environment could make nothing of the action."""
    done: bool = False
    """Whether the environment said that the episode is over."""
    planned: int = 0
    """Tokens at its start that are a plan, not an act; only where credit tells them apart."""

    @property
    def tokens(self) -> int:
        """Tokens that the model generated in it."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Episode:
    """The turns of one completion. `outcome` is any finite number, penalties taken off; None is no verdict, never 0."""

    turns: tuple[Turn, ...]
    outcome: float | None
    truncated: bool = False
    """The token budget ended it, not the environment nor `max_turns`."""
    problem: str = ""
    """Why there is no verdict, in one line."""
    reason: str = ""
    """The same as a short stable code."""
    answer: str | None = None
    """What is judged of an episode with tools: the turn that called none. None is the whole transcript."""

    @property
    def judged(self) -> str:
        """What verifiers read of it."""
        return self.transcript if self.answer is None else self.answer

    @property
    def spoken(self) -> int:
        """Tokens that the model generated."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def played(self) -> Played:
        """What a verifier is told of it."""
        return Played(self.outcome, self.reason, self.problem)

    @property
    def transcript(self) -> str:
        """The episode as text: each turn under who spoke."""
        lines = []
        for turn in self.turns:
            lines.append(f"[assistant] {turn.text}")
            if turn.observation:
                lines.append(f"[environment] {turn.observation}")
        return "\n".join(lines)

    def mask(self, length: int) -> list[int]:
        """1 for each of the completion's `length` tokens that the model generated, 0 for the environment's."""
        mask = [0] * length
        for turn in self.turns:
            mask[turn.start : turn.end] = [1] * turn.tokens
        return mask
