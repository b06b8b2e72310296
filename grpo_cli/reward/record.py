"""A judged completion as the record that goes to disk: the one place where such a record is made."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.reward.judge import Judgement
from grpo_cli.rollout.engine import Completion
from grpo_cli.run.records import SampleRecord


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
    tokens, where they differ, `values` what a critic says before each turn."""
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
        tokens=completion.spoken,
        truncated=completion.finish == "length",
        assistant_prefix=assistant_prefix,
        turns=turn_lines(completion, advantage, advantages),
        values=values,
        env_tokens=len(completion.token_ids) - completion.spoken,
        primary=judgement.primary,
    )


def _known(reward: float | None) -> float | None:
    return None if reward is None or math.isnan(reward) else reward


def turn_lines(
    completion: Completion, advantage: float | None, advantages: Sequence[float] | None
) -> list[dict[str, Any]]:
    """What goes to disk of an episode's turns; the advantage of one is the mean over its tokens."""
    episode = completion.episode
    return [
        {
            "text": turn.text,
            "observation": turn.observation,
            "tokens": turn.tokens,
            "reward": turn.reward,
            # what tells states apart; the text of a state may be as long as the world pleases
            "state_hash": f"{zlib.crc32(turn.state.encode('utf-8', 'surrogatepass')):08x}",
            "milestone": turn.milestone,
            "valid": turn.valid,
            "advantage": advantage
            if advantages is None
            else math.fsum(advantages[turn.start : turn.end]) / max(turn.tokens, 1),
        }
        for turn in (episode.turns if episode is not None else ())
    ]
