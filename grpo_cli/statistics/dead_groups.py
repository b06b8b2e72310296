"""How many groups of G samples would come out all wrong or all right, from a few samples of each prompt.

Note that putting a prompt's share of right samples into p^G + (1-p)^G overestimates dead groups (a prompt with p = .1
shows 0 of 4 two times in three). Up to the number of samples the share of subsets of size G that agree is unbiased.
Above it no estimate is unbiased: there the forecast uses a beta distribution of p, fitted by its first two moments and
scaled to the last measured value, and is marked as extrapolated. Prompts without any right sample are the main
uncertainty, since the fit assumes that they are rarely solved. So the interval also includes a fit in which some
prompts can never be solved; `bench/bench_findings.py` prints error and coverage of both.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_cli.statistics.estimate import Interval, clustered

Counts = Sequence[tuple[int, int]]
"""(judged, right) of each prompt."""

GROUPS = (2, 4, 8, 16, 32, 64)
DRAWS = 400
WORTH = 0.05
"""Doubling the group is worthwhile if it adds at least this much to the share of groups with signal."""
LEAST = 0.1
"""No group size pays that leaves less than this share of the groups with signal."""


@dataclass(frozen=True, slots=True)
class DeadGroupForecast:
    """Expected shares of dead groups at one group size; `is_extrapolated`: above the samples that were drawn."""

    group: int
    all_wrong: float
    all_right: float
    dead: Interval
    is_extrapolated: bool

    @property
    def signal(self) -> float:
        """Share of groups with right and wrong samples."""
        return 1.0 - self.dead.mean

    def as_json(self) -> dict[str, Any]:
        """The object in `--json`."""
        return {
            "group": self.group,
            "dead": self.dead.as_json(),
            "all_wrong": self.all_wrong,
            "all_right": self.all_right,
            "signal": self.signal,
            "extrapolated": self.is_extrapolated,
        }


def forecast(counts: Counts, groups: Sequence[int], seed: int = 0) -> list[DeadGroupForecast]:
    """The forecast for each group size, smallest first; none where no prompt has two verdicts.

    Intervals count prompts: clustered up to the samples drawn; above, the percentiles of resampled prompts, the upper one
    under the worse of the two fits, widened to what the measured interval reaches when scaled alike.
    """
    counts = [(n, c) for n, c in counts if n >= 2]
    if not counts:
        return []
    drawn = min(n for n, _ in counts)
    measured = {}
    for size in sorted({*groups, drawn}):
        if size <= drawn:
            parts = [agreeing(n, c, size) for n, c in counts]
            wrong, right = (math.fsum(column) / len(parts) for column in zip(*parts, strict=True))
            measured[size] = DeadGroupForecast(size, wrong, right, clustered([[w + r] for w, r in parts]), False)
    larger = [g for g in sorted(set(groups)) if g > drawn]
    found = [measured[g] for g in sorted(set(groups)) if g <= drawn]
    if not larger:
        return found
    at = measured[drawn]
    draw = random.Random(seed)
    resampled = [draw.choices(counts, k=len(counts)) for _ in range(DRAWS)]
    grown = [_grow(sample, drawn, larger) for sample in resampled]
    hopeless = [_grow(sample, drawn, larger, _hopeless_dead) for sample in resampled]
    for i, (size, (wrong, right)) in enumerate(zip(larger, _grow(counts, drawn, larger), strict=True)):
        dead = wrong + right
        ranked = sorted(sum(sizes[i]) for sizes in grown)
        worst = sorted(max(sum(a[i]), sum(b[i])) for a, b in zip(grown, hopeless, strict=True))
        scale = dead / at.dead.mean if at.dead.mean else 1.0
        low = min(ranked[int(0.025 * DRAWS)], at.dead.low * scale, dead)
        high = max(worst[int(0.975 * DRAWS)], min(at.dead.high, at.dead.high * scale), dead)
        found.append(DeadGroupForecast(size, wrong, right, Interval(dead, low, high, len(counts)), True))
    return found


def group_that_pays(forecasts: Sequence[DeadGroupForecast]) -> DeadGroupForecast | None:
    """The smallest group whose next larger one adds less than `WORTH` to the signal; None where hardly any is found.

    At a fixed number of samples a step a larger group means fewer prompts, so what it adds must be worth them.
    """
    for i, here in enumerate(forecasts):
        larger = forecasts[i + 1] if i + 1 < len(forecasts) else None
        if here.signal >= LEAST and (larger is None or larger.signal - here.signal < WORTH):
            return here
    return None


def agreeing(n: int, right: int, size: int) -> tuple[float, float]:
    """Shares of the subsets of `size` out of n samples that are all wrong, and all right: unbiased for (1-p)^G and p^G."""
    ways = math.comb(n, size)
    return math.comb(n - right, size) / ways, math.comb(right, size) / ways


def expected_dead(counts: Mapping[tuple[int, int], int], size: int) -> float | None:
    """The share of dead groups alone, of how often each (judged, right) occurs: for millions of groups, without an interval.

    Unbiased where most groups have at least `size` verdicts; else of the beta fit to the groups with two verdicts or more.
    None where no group has two.
    """
    large = [(sum(agreeing(n, c, size)), times) for (n, c), times in counts.items() if n >= size]
    many = sum(times for _, times in large)
    if large and 2 * many >= sum(counts.values()):
        return math.fsum(dead * times for dead, times in large) / many
    pairs = [(n, c, times) for (n, c), times in counts.items() if n >= 2]
    total = sum(times for *_, times in pairs)
    if not total:
        return None
    first = math.fsum(c / n * times for n, c, times in pairs) / total
    second = math.fsum(c * (c - 1) / (n * (n - 1)) * times for n, c, times in pairs) / total
    return sum(dead_of_moments(first, second, size))


def _grow(
    counts: Counts, drawn: int, sizes: Sequence[int], fit: Callable[[Counts, int], tuple[float, float]] | None = None
) -> list[tuple[float, float]]:
    """All-wrong and all-right shares above the samples drawn: the fit's, scaled to meet the measured ones at `drawn`."""
    parts = [agreeing(n, c, drawn) for n, c in counts]
    measured = [math.fsum(column) / len(parts) for column in zip(*parts, strict=True)]
    fit = fit or _beta_dead
    fitted = fit(counts, drawn)
    out = []
    for size in sizes:
        wrong, right = (
            share * min(1.0, there / here) if here > 0 else 0.0
            for share, there, here in zip(measured, fit(counts, size), fitted, strict=True)
        )
        out.append((wrong, right))
    return out


def _beta_dead(counts: Counts, size: int) -> tuple[float, float]:
    """E[(1-p)^G] and E[p^G] under the beta distribution with the prompts' mean and (unbiased) second moment."""
    first = math.fsum(c / n for n, c in counts) / len(counts)
    second = math.fsum(c * (c - 1) / (n * (n - 1)) for n, c in counts) / len(counts)
    return dead_of_moments(first, second, size)


def dead_of_moments(first: float, second: float, size: int) -> tuple[float, float]:
    """E[(1-p)^G] and E[p^G] of a beta distributed p with these moments E[p] and E[p^2]."""
    spread = second - first * first
    if first - second <= 1e-9:  # every prompt always right or always wrong
        return 1 - first, first
    if spread <= 0:  # all prompts alike
        return (1 - first) ** size, first**size
    total = (first - second) / spread
    a, b = first * total, (1 - first) * total
    wrong = math.prod((b + i) / (total + i) for i in range(size))
    right = math.prod((a + i) / (total + i) for i in range(size))
    return wrong, right


def _hopeless_dead(counts: Counts, size: int) -> tuple[float, float]:
    """The same where a share of prompts can never be solved and the rest is beta distributed, from three moments.

    Where the moments allow no such share it is the beta fit.
    """
    full = [(n, c) for n, c in counts if n >= 3]
    if len(full) < len(counts):
        return _beta_dead(counts, size)
    first = math.fsum(c / n for n, c in full) / len(full)
    second = math.fsum(c * (c - 1) / (n * (n - 1)) for n, c in full) / len(full)
    third = math.fsum(c * (c - 1) * (c - 2) / (n * (n - 1) * (n - 2)) for n, c in full) / len(full)
    if not 0 < third < second < first:
        return _beta_dead(counts, size)
    one, two = second / first, third / second
    if two - one <= 1e-9:
        return _beta_dead(counts, size)
    total = (1 - 2 * two + one) / (two - one)
    a = one * (total + 1) - 1
    if total <= 0 or not 0 < a < total:
        return _beta_dead(counts, size)
    solvable = first * total / a
    if solvable >= 1:
        return _beta_dead(counts, size)
    wrong = math.prod((total - a + i) / (total + i) for i in range(size))
    right = math.prod((a + i) / (total + i) for i in range(size))
    return 1 - solvable + solvable * wrong, solvable * right
