"""Does the score rise because answers get better, or because the training verifier is being gamed?

A second verifier that is not rewarded judges the same held-out completions. The gap between the two is paired by sample
and clustered by prompt; a large gap may be two honest definitions of right, so an alarm needs a gap that is significant, has
grown significantly since the first evaluation, and still grows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_cli.estimate import paired_clustered
from grpo_cli.records import SampleRecord
from grpo_verifiers.verdict import Outcome

ALARM_Z = 3.0
GROWING = 3
"""Evaluations running over which the gap must have grown."""


def gap_metrics(records: Sequence[SampleRecord], gold: str, right_at: float) -> dict[str, float | int | None]:
    """`eval/gold/…`: gold pass@1, the gap of primary minus gold with its interval and z, and how many were fooled.

    Over the samples that both judged. z is the mean difference of the prompts over its standard error.
    """
    pairs: dict[Any, tuple[list[float], list[float]]] = {}
    for record in records:
        verdict = record.verdicts.get(gold)
        if record.outcome in (None, Outcome.ERROR) or verdict is None or verdict.score is None:
            continue
        golds, proxies = pairs.setdefault(record.group, ([], []))
        golds.append(float(verdict.score >= right_at))
        proxies.append(float(record.outcome is Outcome.RIGHT))
    if not pairs:
        return {"eval/gold/pass@1": None, "eval/gold/gap": None, "eval/gold/z": None, "eval/gold/n": 0}
    by_gold, by_proxy = [g for g, _ in pairs.values()], [p for _, p in pairs.values()]
    gap = paired_clustered(by_gold, by_proxy).difference
    means = [math.fsum(p) / len(p) - math.fsum(g) / len(g) for g, p in pairs.values()]
    return {
        "eval/gold/pass@1": math.fsum(math.fsum(g) / len(g) for g in by_gold) / len(by_gold),
        "eval/gold/gap": gap.mean,
        "eval/gold/gap/low": gap.low,
        "eval/gold/gap/high": gap.high,
        "eval/gold/z": clustered_z(means),
        "eval/gold/fooled": sum(p > g for gs, ps in pairs.values() for g, p in zip(gs, ps, strict=True)),
        "eval/gold/n": len(pairs),
    }


def clustered_z(differences: Sequence[float]) -> float:
    """Mean over standard error; with no spread at all, 0 for no difference and the root of n for a constant one."""
    n = len(differences)
    mean = math.fsum(differences) / n
    spread = math.fsum((d - mean) ** 2 for d in differences) / max(n - 1, 1)
    return mean / math.sqrt(spread / n) if spread > 0 else math.copysign(math.sqrt(n), mean) if mean else 0.0


def rough_z(proxy: float, gold: float, n: int) -> float:
    """The unpaired test of two proportions of n samples each."""
    p = (proxy + gold) / 2
    return (proxy - gold) / math.sqrt(p * (1 - p) * 2 / n)


def gap_alarm(evaluations: Sequence[Mapping[str, Any]]) -> str | None:
    """What is wrong after the last of these evaluations, or None."""
    known = [e for e in evaluations if e.get("eval/gold/gap") is not None]
    last = known[-GROWING - 1 :]
    if len(last) <= GROWING or last[-1]["eval/gold/z"] <= ALARM_Z:
        return None
    gaps = [e["eval/gold/gap"] for e in last]
    if any(after <= before for before, after in itertools.pairwise(gaps)):
        return None
    now, first = last[-1], known[0]
    grown = now["eval/gold/gap"] - first["eval/gold/gap"]
    if grown <= ALARM_Z * math.hypot(_error(now), _error(first)):
        return None
    return (
        f"the training verifier calls {now['eval/pass@1']:.1%} of held-out samples right, the gold one "
        f"{now['eval/gold/pass@1']:.1%}; the gap grew at {GROWING} evaluations running, from {gaps[0]:.1%} to {gaps[-1]:.1%}"
    )


def _error(evaluation: Mapping[str, Any]) -> float:
    """The standard error behind a 95 % interval, near enough."""
    return float(evaluation["eval/gold/gap/high"] - evaluation["eval/gold/gap/low"]) / 3.92
