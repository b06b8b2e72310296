"""One prompt's samples of this step, with what the judge says of them. A reward of NaN is "no verdict", never 0."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grpo_cli.reward.judge import Judgement
from grpo_cli.rollout.engine import Completion
from grpo_verifiers.verdict import Outcome


@dataclass(frozen=True, slots=True)
class Group:
    """The samples of one row; `rewards` are the judge's, with shaping added."""

    row: int
    completions: list[Completion]
    texts: list[str]
    judgements: list[Judgement]
    rewards: list[float]

    @property
    def tokens(self) -> int:
        """Completion tokens of all samples."""
        return sum(len(c.token_ids) for c in self.completions)

    @property
    def generated(self) -> int:
        """Tokens of them that were generated for it, not kept from earlier completions."""
        return self.tokens - sum(c.kept for c in self.completions)

    @property
    def judged(self) -> int:
        """Samples with a primary verdict."""
        return sum(j.outcome is not Outcome.ERROR for j in self.judgements)

    @property
    def right(self) -> int:
        """Samples that the primary verifier calls right."""
        return sum(j.is_right for j in self.judgements)

    def has_signal(self, floor: float) -> bool:
        """Whether its rewards differ by `floor` or more: otherwise every advantage is 0."""
        known = [r for r in self.rewards if not math.isnan(r)]
        return len(known) > 1 and max(known) - min(known) >= max(floor, 1e-12)

    def joined(self, other: Group) -> Group:
        """More samples of the same row behind these."""
        assert self.row == other.row
        return Group(
            self.row,
            [*self.completions, *other.completions],
            [*self.texts, *other.texts],
            [*self.judgements, *other.judgements],
            [*self.rewards, *other.rewards],
        )
