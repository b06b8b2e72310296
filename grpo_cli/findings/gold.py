"""Does the score rise because answers get better, or because the training verifier is being gamed?

A second verifier that is not rewarded judges the same held-out completions. The gap between the two is paired by sample
and clustered by prompt. An alarm is a gap that is surely above ten points, even at the first evaluation (the two do not mean
the same by right), or a smaller significant one that has grown significantly since then and still grows or has cost gold
score. A small constant gap is two honest definitions of right and stays silent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import ALIKE, paired_clustered

ALARM_Z = 3.0
WIDE = 0.10
GROWING = 3
"""Evaluations running over which the gap must have grown, unless gold is below its start already."""


def gap_metrics(records: Sequence[SampleRecord], gold: str, right_at: float) -> dict[str, float | int | None]:
    """`eval/gold/…`: gold pass@1, the gap of primary minus gold with its interval and z, and how many were fooled.

    Over the samples that both judged. z is the mean difference of the prompts over its standard error.
    """
    pairs: dict[Any, tuple[list[float], list[float]]] = {}
    for record in records:
        verdict = record.verdicts.get(gold)
        if not record.is_judged or verdict is None or verdict.score is None:
            continue
        golds, proxies = pairs.setdefault(record.group, ([], []))
        golds.append(float(verdict.score >= right_at))
        proxies.append(float(record.is_right))
    if not pairs:
        return {"eval/gold/pass@1": None, "eval/gold/gap": None, "eval/gold/z": None, "eval/gold/n": 0}
    gap = paired_clustered([g for g, _ in pairs.values()], [p for _, p in pairs.values()]).difference
    return {
        "eval/gold/pass@1": fmean(fmean(g) for g, _ in pairs.values()),
        "eval/gold/gap": gap.mean,
        "eval/gold/gap/low": gap.low,
        "eval/gold/gap/high": gap.high,
        "eval/gold/z": clustered_z([fmean(p) - fmean(g) for g, p in pairs.values()]),
        "eval/gold/fooled": sum(p > g for gs, ps in pairs.values() for g, p in zip(gs, ps, strict=True)),
        "eval/gold/n": len(pairs),
    }


def trusted_score(evaluation: Mapping[str, Any]) -> float:
    """The gold score where it was measured, else the primary verifier's: what a checkpoint is called best by."""
    gold = evaluation.get("eval/gold/pass@1")
    return float(evaluation["eval/pass@1"] if gold is None else gold)


def clustered_z(differences: Sequence[float]) -> float:
    """Mean over standard error; with no spread at all, 0 for no difference and the root of n for a constant one."""
    n = len(differences)
    mean = math.fsum(differences) / n
    spread = math.fsum((d - mean) ** 2 for d in differences) / max(n - 1, 1)
    if max(differences) - min(differences) > ALIKE:
        return mean / math.sqrt(spread / n)
    return math.copysign(math.sqrt(n), mean) if abs(mean) > ALIKE else 0.0


def gap_alarm(evaluations: Sequence[Mapping[str, Any]]) -> str | None:
    """What is wrong after the last of these evaluations, or None."""
    known = [e for e in evaluations if e.get("eval/gold/gap") is not None]
    if not known:
        return None
    first, now = known[0], known[-1]
    said = (
        f"the training verifier calls {now['eval/pass@1']:.1%} of held-out samples right, "
        f"the gold one {now['eval/gold/pass@1']:.1%}"
    )
    if now["eval/gold/gap/low"] > WIDE:
        start = f", {first['eval/gold/gap']:.1%} at the start" if now is not first else ""
        return f"{said}: a gap of {now['eval/gold/gap']:.1%}{start}"
    grown = now["eval/gold/gap"] - first["eval/gold/gap"]
    if now["eval/gold/z"] <= ALARM_Z or grown <= ALARM_Z * math.hypot(_error(now), _error(first)):
        return None
    gaps = [e["eval/gold/gap"] for e in known[-GROWING:]]
    grows = len(gaps) == GROWING and all(after > before for before, after in itertools.pairwise(gaps))
    if not grows and now["eval/gold/pass@1"] >= first["eval/gold/pass@1"]:
        return None
    return f"{said}; the gap grew from {first['eval/gold/gap']:.1%} at the start"


def _error(evaluation: Mapping[str, Any]) -> float:
    """The standard error behind a 95 % interval, near enough."""
    return float(evaluation["eval/gold/gap/high"] - evaluation["eval/gold/gap/low"]) / 3.92
