"""What was sampled in a step, beside what was trained on: with `dead_groups: resample` and `select: screen` these differ.

Training scores are then of groups that were kept for being mixed, and say nothing about how well the policy does. So rules
and displays read the numbers of all groups that were drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.groups import group_samples
from grpo_cli.statistics.step import Stats, group_stats, outcome_stats, reward_stats

PREFIX = "drawn/"
TOTAL = "reward/total/mean"
GROUPS = ("count", "all_wrong", "mixed", "all_right", "no_verdict", "with_signal", "signal")


def drawn_stats(samples: Sequence[SampleRecord], group_size: int, signal: Sequence[bool]) -> Stats:
    """`drawn/right` (share of the judged), `drawn/reward/mean`, `drawn/reward/NAME/mean` and `drawn/group/…`.

    `samples` are all that were drawn, `signal` says of each of their groups whether the method learns from it.
    """
    rewards = reward_stats(samples)
    found: Stats = {"right": outcome_stats(samples)["right"], "reward/mean": rewards[TOTAL]}
    found |= {key: value for key, value in rewards.items() if key.endswith("/mean") and key != TOTAL}
    groups = group_stats(list(group_samples(samples).values()), group_size, (), signal)
    found |= {f"group/{name}": groups[f"group/{name}"] for name in GROUPS}
    return {f"{PREFIX}{key}": value for key, value in found.items()}


def as_drawn(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line of metrics with the numbers of all that was drawn in place of those of what was trained on.

    Lines of older runs, and of evaluations, stay as they are.
    """
    drawn = {
        key.removeprefix(PREFIX): value
        for key, value in metrics.items()
        if key.startswith(PREFIX) and value is not None
    }
    if not drawn:
        return metrics
    if "reward/mean" in drawn:
        drawn[TOTAL] = drawn.pop("reward/mean")
    return {**metrics, **drawn}
