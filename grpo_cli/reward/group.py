"""One prompt's samples of this step, with their judgements and rewards, and the records of them that go to disk.

A reward of NaN is "no verdict", never 0. `Group.records` is the one place where a judged completion becomes a `SampleRecord`, in
which "no verdict" is None.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from grpo_cli.data.rows import Row
from grpo_cli.reward.judge import Judgement
from grpo_cli.rollout.engine import Completion
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Outcome


@dataclass(frozen=True, slots=True)
class Group:
    """The samples of one row; `rewards` are the judge's, with shaping added; `prompt_ids` the tokens they answer, and
    `assistant_prefix` what of the answer stands in them; `outcomes` what of each reward the outcome pays, empty where the two are
    not known apart: then this group has no gate."""

    row: int
    completions: list[Completion]
    texts: list[str]
    judgements: list[Judgement]
    rewards: list[float]
    prompt_ids: list[int] = field(default_factory=list)
    assistant_prefix: str = ""
    outcomes: list[float] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens of all samples that are the model's own."""
        return sum(c.sampled_tokens for c in self.completions)

    @property
    def judged(self) -> int:
        """Samples with a primary verdict."""
        return sum(j.outcome is not Outcome.ERROR for j in self.judgements)

    @property
    def right(self) -> int:
        """Samples that the primary verifier calls right."""
        return sum(j.is_right for j in self.judgements)

    def parts(self, names: Iterable[str]) -> list[list[float]]:
        """For each sample the scores of these verifiers, NaN where one gave none, and what shaping added to the sum."""
        return [
            # NaN and not 0 for a missing score: it must leave the mean of its part, not pull it down
            [math.nan if (score := j.verdicts[name].score) is None else score for name in names]
            # what is in the reward and in no verdict is shaping
            + [reward - (j.reward or 0.0)]
            for j, reward in zip(self.judgements, self.rewards, strict=True)
        ]

    def joined(self, other: Group) -> Group:
        """More samples of the same row behind these."""
        # verdicts of two rows in one group would give advantages that compare different questions
        assert self.row == other.row
        return Group(
            self.row,
            [*self.completions, *other.completions],
            [*self.texts, *other.texts],
            [*self.judgements, *other.judgements],
            [*self.rewards, *other.rewards],
            self.prompt_ids,
            self.assistant_prefix,
            [*self.outcomes, *other.outcomes],
        )

    def records(
        self,
        step: int,
        number: int,
        row: Row,
        advantages: Sequence[float],
        of_tokens: Sequence[Sequence[float]] | None = None,
        values: Sequence[Sequence[float]] | None = None,
    ) -> list[SampleRecord]:
        """One record a sample, as the `number`-th group of a step; `of_tokens` where the tokens of a sample differ, `values`
        where there is a critic."""
        return [
            sample_record(
                row,
                completion,
                self.texts[i],
                self.judgements[i],
                step=step,
                group=f"{step}/{number}",
                reward=self.rewards[i],
                outcome_reward=self.outcomes[i] if self.outcomes else None,
                advantage=advantages[i],
                assistant_prefix=self.assistant_prefix,
                advantages=None if of_tokens is None else of_tokens[i],
                values=() if values is None else values[i],
            )
            for i, completion in enumerate(self.completions)
        ]


def sample_record(
    row: Row,
    completion: Completion,
    text: str,
    judgement: Judgement,
    *,
    step: int,
    group: str,
    reward: float | None,
    outcome_reward: float | None = None,
    advantage: float | None = None,
    assistant_prefix: str = "",
    advantages: Sequence[float] | None = None,
    values: Sequence[float] = (),
) -> SampleRecord:
    """The record of one sample. A reward of NaN is None in it: no verdict is never a number. `advantages` are those of its
    tokens, where they differ, `values` a critic's before each turn."""
    episode = completion.episode
    return SampleRecord(
        step=step,
        row=row.id,
        group=group,
        prompt=row.prompt,
        completion=text,
        fields=row.fields,
        verdicts=judgement.verdicts,
        outcome=judgement.outcome,
        reward=_known(reward),
        outcome_reward=_known(outcome_reward),
        advantage=advantage,
        tokens=completion.sampled_tokens,
        truncated=completion.finish == "length",
        assistant_prefix=assistant_prefix,
        turns=[
            {
                "text": turn.text,
                "observation": turn.observation,
                "tokens": turn.tokens,
                "reward": turn.reward,
                # a hash, enough to tell states apart: the text of a state may be of any length
                "state_hash": f"{zlib.crc32(turn.state.encode('utf-8', 'surrogatepass')):08x}",
                "milestone": turn.milestone,
                "valid": turn.valid,
                # the mean over its tokens, so that turns of unlike length can be compared
                "advantage": advantage
                if advantages is None
                else math.fsum(advantages[turn.start : turn.end]) / max(turn.tokens, 1),
            }
            for turn in (episode.turns if episode is not None else ())
        ],
        values=values,
        # what is left of the ids was written by the environment and is in no loss
        env_tokens=len(completion.token_ids) - completion.sampled_tokens,
        primary=judgement.primary,
    )


def _known(reward: float | None) -> float | None:
    return None if reward is None or math.isnan(reward) else reward
