"""What evaluations find wrong: W53, held-out prompts are answered right less often than before the first step; and W40 of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from grpo_cli.findings.finding import Finding, History, Limits, finding_at
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


def held_out_unjudged(evaluations: History) -> Finding | None:
    """W40: verifiers fail on held-out samples."""
    samples, failed = (evaluations[-1].get(f"eval/{key}") or 0 for key in ("samples", "without_verdict"))
    if failed <= Limits().verifier_trouble * samples:
        return None
    text = f"verifiers fail on {failed:,} of {samples:,} held-out samples: these count neither as right nor as wrong"
    return finding_at(
        "W40", evaluations, text, "see `reason` in the samples under `eval/`, and mend the verifier"
    )


class HeldOutFall:
    """W53 and W40 of evaluations while a run goes on, each once. It sees every evaluation in order."""

    def __init__(self) -> None:
        self._evaluations: list[Metrics] = []
        self._said: set[str] = set()

    def evaluated(self, metrics: Metrics) -> list[Finding]:
        """What is newly found at this evaluation."""
        self._evaluations.append(metrics)
        looks = (held_out_fell(self._evaluations), held_out_unjudged(self._evaluations))
        found = [finding for finding in looks if finding is not None and finding.code not in self._said]
        self._said.update(finding.code for finding in found)
        return found

    def over(self, evaluations: Iterable[Metrics]) -> list[Finding]:
        """What is newly found at these evaluations."""
        return [finding for metrics in evaluations for finding in self.evaluated(metrics)]
