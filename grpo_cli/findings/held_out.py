"""W53: held-out prompts are answered right less often than before the first step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from grpo_cli.findings.finding import Finding, History, finding_at
from grpo_cli.run.info import Metrics, of_all_rows

ALPHA = 0.05
"""Chance of saying it falsely at any of a run's evaluations: the j-th gets 1/(j (j + 1)) of it."""
Z_OF_HALF = NormalDist().inv_cdf(0.975)
"""Standard errors in the half-width of a recorded interval, which holds 95 %."""


def held_out_fell(evaluations: History) -> Finding | None:
    """W53: fewer held-out answers are right, sampled or greedy, than at the first evaluation, by more than chance.

    The two are compared as if they had been drawn apart, though their prompts are the same: what is said is said late rather
    than falsely.
    """
    evaluations = of_all_rows(evaluations)
    if len(evaluations) < 2:
        return None
    first, last = evaluations[0], evaluations[-1]
    for key, name in (("eval/pass@1", "pass@1"), ("eval/greedy", "greedy pass@1")):
        before, after = first.get(key), last.get(key)
        half_before, half_after = first.get(f"{key}/half"), last.get(f"{key}/half")
        if before is None or after is None or not half_before or not half_after:
            continue
        z = (before - after) * Z_OF_HALF / math.hypot(half_before, half_after)
        looks = len(evaluations) - 1
        p = 2 * NormalDist().cdf(-z)
        if z <= 0 or p * looks * (looks + 1) >= ALPHA:
            continue
        text = f"held-out {name} is {after:.3f}, {before:.3f} at step {first.get('step', 0)}: training has made it worse"
        hint = "keep the weights it began with; lower `train.lr`, raise `train.kl.beta`, or read what the reward pays for"
        return finding_at("W53", evaluations, text, hint)
    return None


class HeldOutFall:
    """W53 while a run goes on: said once. It sees every evaluation in order."""

    def __init__(self) -> None:
        self._evaluations: list[Metrics] = []
        self._is_said = False

    def evaluated(self, metrics: Metrics) -> list[Finding]:
        """What is newly found at this evaluation."""
        self._evaluations.append(metrics)
        found = None if self._is_said else held_out_fell(self._evaluations)
        self._is_said |= found is not None
        return [found] if found else []

    def over(self, evaluations: Iterable[Metrics]) -> list[Finding]:
        """What is newly found at these evaluations."""
        return [finding for metrics in evaluations for finding in self.evaluated(metrics)]
