"""A judged completion as the record that goes to disk: the one place where such a record is made."""

from __future__ import annotations

import math

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
    advantage: float | None = None,
    begun: str = "",
) -> SampleRecord:
    """The record of one sample. A `reward` of NaN is None in it: no verdict is never a number."""
    return SampleRecord(
        step=step,
        row=row.id,
        group=group,
        prompt=row.prompt,
        completion=text,
        fields=row.fields,
        verdicts=judgement.verdicts,
        outcome=judgement.outcome,
        reward=None if reward is None or math.isnan(reward) else reward,
        advantage=advantage,
        tokens=len(completion.token_ids),
        truncated=completion.finish == "length",
        begun=begun,
        primary=judgement.primary,
    )
