"""Estimates with their uncertainty: pure functions, checked by simulation in `bench/bench_coverage.py`.

The unit of independence is the prompt: the samples of one prompt are not independent, so every interval counts prompts
(clusters), never samples. Intervals are 95 %, two-sided; ± is half their width.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

LEVEL = 0.95
_z = NormalDist().inv_cdf

ALIKE = 1e-9
"""Values closer than this differ by rounding alone: such a spread measures nothing."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval; `n` counts what is independent (prompts, or seeds)."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the width, the number behind ±."""
        return (self.high - self.low) / 2

    def as_json(self) -> dict[str, float | int]:
        """The shape used by every `--json`."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "half": self.half_width, "n": self.n}


@dataclass(frozen=True, slots=True)
class Comparison:
    """B minus A on the same prompts; `detectable` is the true difference found with 80 % power at this n and noise."""

    difference: Interval
    p_value: float
    detectable: float


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that at least one of k samples is right, unbiased from n >= k samples with c right (Chen et al. 2021).

    Raises:
        ValueError: k is not in 1..n, or c not in 0..n.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@{k} cannot be estimated from {c} right of {n}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def maj_at_k(answers: Sequence[str | None], is_right: Sequence[bool], k: int) -> float:
    """Chance that the most frequent of k answers is right, over all ways to draw k of the samples without replacement.

    Right answers are one answer however they are spelled; a wrong sample without an answer does not vote; ties share.

    Raises:
        ValueError: k is not in 1..n.
    """
    n = len(answers)
    if not 1 <= k <= n:
        raise ValueError(f"maj@{k} cannot be estimated from {n} samples")
    right = sum(is_right)
    votes = Counter(a for a, r in zip(answers, is_right, strict=True) if not r and a is not None)
    silent = n - right - sum(votes.values())
    total = 0.0
    for cap in range(1, min(right, k) + 1):
        # with `cap` right samples drawn: ways to draw the others with no answer above the cap, by (drawn, answers at the cap)
        left = k - cap
        ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})
        for count in votes.values():
            grown: Counter[tuple[int, int]] = Counter()
            for (drawn, ties), have in ways.items():
                for take in range(min(count, cap, left - drawn) + 1):
                    grown[drawn + take, ties + (take == cap)] += have * math.comb(count, take)
            ways = grown
        by_ties: Counter[int] = Counter()
        for (drawn, ties), have in ways.items():
            if left - drawn <= silent:
                by_ties[ties] += have * math.comb(silent, left - drawn)
        total += math.comb(right, cap) * sum(count / (1 + ties) for ties, count in by_ties.items())
    return total / math.comb(n, k)


def wilson(successes: float, n: float, quantile: float | None = None) -> Interval:
    """Wilson's score interval of a share from n independent yes/no trials; n may be an effective number."""
    if n <= 0:
        return Interval(math.nan, 0.0, 1.0, 0)
    z = _z(0.5 + LEVEL / 2) if quantile is None else quantile
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return Interval(share, low, high, round(n))


def clustered(values_per_group: Sequence[Sequence[float]], *, most_trials: float = math.inf) -> Interval:
    """The mean over prompts of the mean over a prompt's samples, with an interval clustered by prompt.

    Every prompt weighs the same; empty groups (no verdict at all) are left out. Shares get Wilson's interval at the
    effective number of trials p(1 - p)/se², not above `most_trials`, with Student's quantile at n - 1; other values get
    the plain t interval, which is endless where all prompts are alike: nothing bounds them then.
    """
    means = [math.fsum(values) / len(values) for values in values_per_group if values]
    n = len(means)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    centre = math.fsum(means) / n
    is_share = all(0.0 <= value <= 1.0 for value in means)
    if n == 1:
        return Interval(centre, 0.0, 1.0, 1) if is_share else Interval(centre, -math.inf, math.inf, 1)
    variance = math.fsum((value - centre) ** 2 for value in means) / (n - 1) / n
    alike = _are_alike(means)
    quantile = _t(0.5 + LEVEL / 2, n - 1)
    if not is_share:
        half = math.inf if alike else quantile * math.sqrt(variance)
        return Interval(centre, centre - half, centre + half, n)
    if not alike:
        effective = min(centre * (1 - centre) / variance, most_trials)
    else:
        # At p = 0 or 1 the variance shows nothing, so prompts bound it; where all prompts share one other share, samples do.
        samples = float(sum(len(values) for values in values_per_group))
        effective = float(n) if centre in (0.0, 1.0) else min(samples, most_trials)
    found = wilson(centre * effective, effective, quantile)
    return Interval(centre, found.low, found.high, n)


def pass_at_k_interval(counts: Sequence[tuple[int, int]], k: int) -> Interval:
    """pass@k over prompts given as (judged, right), with its interval; prompts with fewer than k samples are left out.

    A prompt whose samples are all right or all wrong is worth one trial: it shows nothing of how often they would not be.
    So n samples are at most 1 + (n/k - 1) x (share of prompts with both) independent trials. Without a bound the interval of a
    pass@k near 1 rests on the few prompts that fail, and covers 76 % instead of 95 % (pass@4 of 8 at .99, 64 prompts); with n/k
    for every prompt, 89 % (pass@4 of 16 at .96, prompts Beta(.9, .1)).
    """
    full = [(n, c) for n, c in counts if n >= k]
    mixed = sum(0 < c < n for n, c in full) / max(len(full), 1)
    trials = len(full) + (sum(n for n, _ in full) / k - len(full)) * mixed
    return clustered([[pass_at_k(n, c, k)] for n, c in full], most_trials=trials)


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Two-sided exact p-value from the prompts that just one of two models gets right."""
    n = only_a + only_b
    if n == 0:
        return 1.0
    term = total = 1
    for i in range(min(only_a, only_b)):
        term = term * (n - i) // (i + 1)
        total += term
    return min(1.0, 2 * total / (1 << n))


def paired_clustered(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> Comparison:
    """B minus A over the prompts where both have samples: t test on the differences of the prompts' means.

    Where all differences are alike there is no spread to estimate noise from. Then prompts bound shares exactly, by the binomial
    distribution: u of the prompts that behave otherwise (at worst -1, at best +1) stay unseen in n with chance (1 - u)^n. Equal
    models: u at 5 %, the rule of three. Else 2.5 % a side, so that the interval leaves out 0 just where the sign test
    (McNemar's, with all of n on one side) rejects: p = 2^(1 - n). With fewer than two prompts, or values outside [0, 1] that
    are all alike, nothing bounds it: infinite.

    Raises:
        ValueError: the two are not about the same prompts.
    """
    from scipy.special import stdtr

    if len(a) != len(b):
        raise ValueError(f"{len(a)} prompts against {len(b)}: not the same prompts")
    pairs = [(math.fsum(x) / len(x), math.fsum(y) / len(y)) for x, y in zip(a, b, strict=True) if x and y]
    gaps = [there - here for here, there in pairs]
    n = len(gaps)
    if n < 2:
        centre = gaps[0] if gaps else math.nan
        return Comparison(Interval(centre, -math.inf, math.inf, n), 1.0, math.inf)
    centre = math.fsum(gaps) / n
    if _are_alike(gaps):
        is_same = abs(centre) <= ALIKE
        unseen = 1 - (1 - LEVEL if is_same else (1 - LEVEL) / 2) ** (1 / n)
        found = Interval(centre, -math.inf, math.inf, n)
        detectable = math.inf
        if all(0.0 <= value <= 1.0 for pair in pairs for value in pair):
            found = Interval(centre, centre - unseen * (1 + centre), centre + unseen * (1 - centre), n)
            detectable = detectable_exactly(n)
        return Comparison(found, 1.0 if is_same else mcnemar_exact(0, n), detectable)
    error = math.sqrt(math.fsum((gap - centre) ** 2 for gap in gaps) / (n - 1) / n)
    half = _t(0.5 + LEVEL / 2, n - 1) * error
    p_value = 2 * float(stdtr(n - 1, -abs(centre) / error))
    # what an estimate with this standard error finds in 80 % of cases, at 5 %
    detectable = (_z(1 - 0.05 / 2) + _z(0.8)) * error
    return Comparison(Interval(centre, centre - half, centre + half, n), p_value, detectable)


def detectable_exactly(n: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """The share of prompts, all to one side, that McNemar's exact test on n prompts finds with this power; inf if none."""
    from scipy.special import bdtri

    needed = next((k for k in range(1, n + 1) if mcnemar_exact(0, k) <= alpha), None)
    if needed is None:
        return math.inf
    return float(bdtri(needed - 1, n, 1 - power))  # the share at which fewer than needed have the chance 1 - power


def _are_alike(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= ALIKE


def min_detectable(n: int, disagree: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest true difference that a paired yes/no test on n prompts finds with this power.

    `disagree` is the share of prompts that exactly one of the two gets right; a difference cannot exceed it, so inf
    means that no difference is found with this power (Connor 1987: the gap with
    gap √n = z_alpha √disagree + z_power √(disagree - gap²), whose square is solved for it).
    """
    z_alpha, z_power = _z(1 - alpha / 2), _z(power)
    if n < z_alpha**2 or not 0 < disagree <= 1:
        return math.inf
    root = z_alpha * math.sqrt(n) + z_power * math.sqrt(n - z_alpha**2 + z_power**2)
    gap = math.sqrt(disagree) * root / (n + z_power**2)
    return gap if gap <= disagree else math.inf


def across_seeds(values: Sequence[float]) -> Interval:
    """Mean and t interval over runs that differ in their seed alone; one run, or runs all alike, have no spread to show."""
    n = len(values)
    centre = math.fsum(values) / n if n else math.nan
    if n < 2 or _are_alike(values):
        return Interval(centre, math.nan, math.nan, n)
    half = _t(0.5 + LEVEL / 2, n - 1) * math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (n - 1) / n)
    return Interval(centre, centre - half, centre + half, n)


def _t(share: float, freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))
