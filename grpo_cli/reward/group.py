"""The samples of one prompt in a step, with their judgements and rewards, and the records of them on disk.

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
    """The samples of one row. `rewards` are the judge's, with shaping added. `prompt_ids` are the prompt's tokens,
    `assistant_prefix` is the beginning of the answer that they contain. `outcomes` are the parts of the rewards that
    the outcome pays; empty if they cannot be separated, and then this group has no gate."""

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
        """Number of tokens in all samples that the model generated."""
        return sum(c.sampled_tokens for c in self.completions)

    @property
    def judged(self) -> int:
        """Samples with a primary verdict."""
        return sum(j.outcome is not Outcome.ERROR for j in self.judgements)

    @property
    def right(self) -> int:
        """Number of samples that the primary verifier judges right."""
        return sum(j.is_right for j in self.judgements)

    def parts(self, names: Iterable[str]) -> list[list[float]]:
        """For each sample the scores of these verifiers (NaN if there is none), and the sum of its shaping rewards."""
        return [
            # NaN, not 0, for a missing score: it must not enter the mean of its part
            [math.nan if (score := j.verdicts[name].score) is None else score for name in names]
            # shaping is the part of the reward that no verdict accounts for
            + [reward - (j.reward or 0.0)]
            for j, reward in zip(self.judgements, self.rewards, strict=True)
        ]

    def means(self, names: Sequence[str]) -> list[float]:
        """For each sample the mean score of these verifiers; NaN where one of them gave none, or did not judge it."""
        scores = [[j.verdicts[name].score if name in j.verdicts else None for name in names] for j in self.judgements]
        return [math.nan if None in own else math.fsum(s or 0.0 for s in own) / len(own) for own in scores]

    def joined(self, other: Group) -> Group:
        """This group with more samples of the same row appended."""
        # with two rows in one group, advantages would compare different questions
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
        """One record a sample, as the `number`-th group of a step; `of_tokens` are token advantages if they differ,
        `values` are those of a critic."""
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
    """The record of one sample. A reward of NaN becomes None, since no verdict is never a number. `advantages` are
    given if the tokens' advantages differ; `values` are a critic's values before each turn."""
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
                # a hash is enough to distinguish states, whose texts may be of any length
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
        # the environment wrote the remaining ids, which are in no loss
        env_tokens=sum(c.mask.count(0) for c in completion.rows),
        rows=[{"parent": b.parent, "at": b.at, "why": b.why} for c in completion.rows if (b := c.branch) is not None],
        endpoint={} if episode is None else episode.counts,
        primary=judgement.primary,
    )


def _known(reward: float | None) -> float | None:
    return None if reward is None or math.isnan(reward) else reward
