"""The common parts of all rules: findings, limits, and windows of a run's history.

A rule reads a window, never one step, so that noise causes no finding; a metric that was not measured causes none
either. Codes: W1x groups, W2x lengths and text, W3x policy, W4x verifiers, W5x numbers and learning rate, W6x rows and
what groups learn from, W7x the gold verifier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo_cli.run.info import Metrics
from grpo_cli.statistics.step import mean, percentile

History = Sequence[Metrics]
"""The lines of a run's steps or evaluations, in order."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, at the step where it was found."""

    code: str
    step: int
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds from which each rule has a finding; windows are steps, shares are in [0, 1].

    The numbers of `health` come from practice; those of `alarms` and `trends` were set on simulated runs, see their tests.
    """

    window: int = 10
    # groups
    no_mixed_steps: int = 5
    all_wrong: float = 0.5
    all_right: float = 0.25
    unsolved: float = 0.25
    # lengths and text
    truncated: float = 0.1
    longer: float = 1.5
    shorter: float = 0.2
    repeated: float = 0.3
    repeated_growth: float = 2.0
    # entropy: what is left of the start in a fast fall, and in a stall
    entropy_left: float = 0.2
    entropy_fall: float = 0.35
    entropy_bend: float = 1.75
    stalled_entropy_left: float = 0.25
    # kl
    kl_growth: float = 3.0
    kl_floor: float = 0.05
    kl_far: float = 0.5
    kl_jump: float = 5.0
    # reward and right samples: smaller gains count as none
    flat_gain: float = 0.02
    flat_steps: int = 30
    right_gain: float = 0.05
    stalled_steps: int = 20
    # what is paid in addition to the outcome
    alone: float = 0.6
    alone_steps: int = 3
    inverted: float = 0.05
    # samples that are all one text
    one_text: float = 0.15
    # verifiers
    verifier_trouble: float = 0.01
    slow_verify_steps: int = 5
    invalid_actions: float = 0.2
    farmed_milestones: float = 0.5
    repeated_milestones: float = 0.3
    more_milestones: float = 0.25
    anchors: float = 0.3
    untrusted: float = 0.05
    broken_steps: int = 5
    usual_share: float = 0.1
    same_length: float = 1.3
    full: float = 0.95
    rise: float = 0.1
    drift: float = 0.15
    # numbers
    grad_factor: float = 10.0
    lost: float = 0.5
    policy_growth: float = 3.0
    # rows
    top_share: float = 0.05
    top_share_steps: int = 40
    # critic: answers further than this from one half right leave nothing to explain
    explicable: float = 0.4
    # how often the same finding is repeated
    again_after: int = 50
    silent_steps: int = 10
    silent_evaluations: int = 3


def step_of(metrics: Metrics) -> int:
    """The step of a line; 0 for a line without one."""
    return int(metrics.get("step") or 0)


def finding_at(code: str, history: History, text: str, hint: str) -> Finding:
    """A finding at the last of these steps."""
    return Finding(code, step_of(history[-1]), text, hint)


def finite(value: object) -> float | None:
    """The value as a float if it is a finite number, else None."""
    # a tuple: a union type would be created at each of hundreds of thousands of calls
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def measured(history: History, key: str) -> list[float]:
    """The finite values of a metric over these steps, however few."""
    return [value for metrics in history if (value := finite(metrics.get(key))) is not None]


def all_of_last(history: History, key: str, steps: int) -> list[float] | None:
    """A metric over the last steps; None if there are fewer, or one was not measured."""
    if len(history) < steps:
        return None
    values = [m.get(key) for m in history[-steps:]]
    known = [v for v in values if v is not None and math.isfinite(v)]
    return known if len(known) == steps else None


def two_medians(history: History, key: str, apart: int, width: int) -> tuple[float | None, float | None]:
    """Medians of a metric over the last `width` steps and over the same number of steps `apart` steps earlier; None
    unless both exist."""
    now = all_of_last(history, key, width)
    before = all_of_last(history[: len(history) - apart], key, width) if len(history) > apart else None
    if now is None or before is None:
        return None, None
    return percentile(now, 0.5), percentile(before, 0.5)


def median(history: History, key: str) -> float | None:
    """Median of the measured values in these steps; None if there are none."""
    return percentile(measured(history, key), 0.5)


def median_of_last(history: History, key: str, steps: int) -> float | None:
    """Median of the measured values in the last steps, however few; None if there are none, or fewer steps."""
    return median(history[-steps:], key) if len(history) >= steps else None


def reward_scale(history: History) -> float:
    """The factor of the bounds on gains of the reward: 1 for rewards in [0, 1], else twice their usual deviation."""
    spread = 2.0 * (median(history, "reward/std") or 0.0)
    return spread if spread > 1.5 else 1.0


def mean_over(history: History, read: str | Callable[[Metrics], float | None], least: int) -> float | None:
    """Mean of a metric, or of `read(step)`; None if fewer than `least` steps measured it."""
    values = [m.get(read) if isinstance(read, str) else read(m) for m in history]
    known = [value for found in values if (value := finite(found)) is not None]
    return mean(known) if len(known) >= least else None


def smooth(history: History, key: str, width: int) -> list[float | None]:
    """The mean over the `width` steps that end at each step; None where fewer than that were measured."""
    return [mean_over(history[max(0, i - width + 1) : i + 1], key, width) for i in range(len(history))]


def two_ends(history: History, key: str, width: int) -> tuple[float, float] | None:
    """Means of the measured values over the first and over the last steps; None if one of them has none."""
    first, last = mean(measured(history[:width], key)), mean(measured(history[-width:], key))
    return None if first is None or last is None else (first, last)
