"""Runs that never were: 16 prompts x 8 samples a step, drawn from pass rates that grow, with the noise real counts have."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

PROMPTS, GROUP = 16, 8
Change = Callable[[int, dict[str, Any]], None]


def simulate(
    steps: int = 100,
    seed: int = 0,
    *,
    chance: Callable[[int], float] | None = None,
    change: Change = lambda step, metrics: None,
    longer: float = 0.3,
) -> list[dict[str, Any]]:
    """Step metrics of a healthy run, `change`d step by step; pass rates of prompts are beta distributed around `chance`."""
    rng = random.Random(seed)
    pace, top = rng.uniform(25, 60), rng.uniform(0.45, 0.6)
    start_length, start_entropy = rng.uniform(100, 300), rng.uniform(0.4, 0.9)
    history = []
    for step in range(1, steps + 1):
        learned = 1 - math.exp(-step / pace)
        p = chance(step) if chance else 0.2 + (top - 0.2) * learned
        rights = [sum(rng.random() < q for _ in range(GROUP)) for q in (spread(rng, p) for _ in range(PROMPTS))]
        metrics = counts(rights) | {
            "step": step,
            "length/mean": start_length * (1 + longer * learned) * rng.uniform(0.93, 1.07),
            "length/right": start_length * (1 + longer * learned) * rng.uniform(0.9, 1.1),
            "truncated": abs(rng.gauss(0.02, 0.01)),
            "entropy": start_entropy * math.exp(-step / 60) * rng.uniform(0.95, 1.05),
            "grad_norm": math.exp(rng.gauss(-1, 0.35)),
            "clip/total": abs(rng.gauss(0.01, 0.005)),
            "loss": rng.gauss(0, 0.02),
            "time/verify": 1.0,
            "time/generate": 9.0,
        }
        if step % 10 == 0:
            metrics["kl"] = 0.05 * learned * rng.uniform(0.8, 1.2)
        change(step, metrics)
        history.append(metrics)
    return history


def spread(rng: random.Random, p: float) -> float:
    """A prompt's own pass rate around p."""
    return rng.betavariate(3 * p + 1e-6, 3 * (1 - p) + 1e-6)


def counts(rights: list[int]) -> dict[str, Any]:
    """What `step_stats` says of one verifier's groups."""
    samples = len(rights) * GROUP
    share = sum(rights) / samples
    wrong, right = sum(r == 0 for r in rights), sum(r == GROUP for r in rights)
    return {
        "right": share, "wrong": 1 - share, "error": 0.0, "over_limit": 0.0, "reward/total/mean": share, "reward/math/mean": share,
        "verify/math/calls": samples, "verify/math/right": sum(rights), "verify/math/error": 0, "group/count": len(rights),
        "group/all_wrong": wrong, "group/all_right": right, "group/mixed": len(rights) - wrong - right,
    }  # fmt: skip
