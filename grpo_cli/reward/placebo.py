"""Placebo arms: the same budget and the same data, with rewards that say nothing about right and wrong.

A method is worth what it gains over these; some models gain from any reward. Verdicts, records and held-out scores stay
the true ones: only what is learned from changes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal

from grpo_cli.reward.judge import Judgement
from grpo_verifiers.verdict import Outcome

Control = Literal["random", "shuffled", "format_only"]


def placebo(
    control: Control, rewards: Sequence[float], judgements: Sequence[Judgement], key: str
) -> list[float]:
    """The rewards of a group under a control; NaN (no verdict) stays where it is. Chance depends on `key` alone.

    `random` is a fair coin. `shuffled` deals the group's own rewards out anew, so their spread is the true one.
    `format_only` rewards any answer that could be read, right or wrong.
    """
    rng = random.Random(key)
    if control == "format_only":
        read = [j.outcome in (Outcome.RIGHT, Outcome.WRONG) for j in judgements]
        return [math.nan if math.isnan(r) else float(ok) for r, ok in zip(rewards, read, strict=True)]
    if control == "random":
        # one for every sample, also without a verdict, so that an error moves nobody else's coin
        coins = [float(rng.random() < 0.5) for _ in rewards]
        return [math.nan if math.isnan(r) else coin for r, coin in zip(rewards, coins, strict=True)]
    known = [r for r in rewards if not math.isnan(r)]
    rng.shuffle(known)
    dealt = iter(known)
    return [r if math.isnan(r) else next(dealt) for r in rewards]
