"""Coverage of the intervals and size of the tests in `grpo_cli/statistics/estimate.py`, as the table of docs/benchmarks/statistics.md.

    python bench/bench_coverage.py [--reps 10000] [--seed 0] > table.md

Prompts differ in difficulty: a prompt's chance of a right answer is Beta distributed with mean p and correlation `icc`
between two samples of one prompt (0 = all prompts alike, 1 = always right or always wrong). Wilson's coverage on
single answers is computed exactly from the binomial, not simulated.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable

import numpy as np

from grpo_cli.statistics.estimate import (
    clustered,
    mcnemar_exact,
    min_detectable,
    paired_clustered,
    pass_at_k_interval,
    wilson,
)

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SIZES = (32, 64, 128, 256, 512, 1024)
ICCS = (0.0, 0.3, 0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    began = time.process_time()
    error = 100 * math.sqrt(0.95 * 0.05 / args.reps)
    print(f"{args.reps:,} simulated evaluations a cell (standard error {error:.2f} points), seed {args.seed}\n")
    print_wilson()
    for icc in ICCS:
        title = f"Coverage of the clustered 95 % interval, 4 samples a prompt, icc {icc}, %"
        print_table(title, SHARES, lambda n, p, icc=icc: clustered_coverage(rng, n, p, icc, 4, args.reps))
    title = "Coverage of the clustered 95 % interval for pass@4 of 8 samples, icc 0.3, by p of one sample, %"
    print_table(title, SHARES, lambda n, p: pass_coverage(rng, n, p, 0.3, 8, 4, args.reps))
    title = "Rejections at 5 % by the paired clustered test, two equal models, 4 samples a prompt, icc 0.3, %"
    print_table(title, SHARES, lambda n, p: paired_size(rng, n, p, 0.3, 4, args.reps))
    title = "Rejections at 5 % by the exact McNemar test, two equal models, one answer a prompt, icc 0.3, %"
    print_table(title, SHARES, lambda n, p: mcnemar_size(rng, n, p, 0.3, args.reps))
    print_power(rng, args.reps)
    print(f"{time.process_time() - began:.0f} CPU-seconds", file=sys.stderr)


def print_table(title: str, shares: tuple[float, ...], cell: Callable[[int, float], float]) -> None:
    print(f"{title}\n")
    print("| prompts | " + " | ".join(f"p = {p}" for p in shares) + " |")
    print("|---:|" + "---:|" * len(shares))
    for n in SIZES:
        print(f"| {n} | " + " | ".join(f"{100 * cell(n, p):.1f}" for p in shares) + " |", flush=True)
    print()


def print_wilson() -> None:
    """Exactly, over the binomial: coverage is saw-toothed in p, so the worst p counts."""
    print("Coverage of Wilson's 95 % interval, one answer a prompt, exact, over 801 values of p in .1 to .9, %\n")
    print("| prompts | lowest | mean | highest |\n|---:|---:|---:|---:|")
    for n in SIZES:
        found = [wilson(c, n) for c in range(n + 1)]
        lows, highs, counts = (np.array([f.low for f in found]), np.array([f.high for f in found]), np.arange(n + 1))
        logs = np.array([math.lgamma(n + 1) - math.lgamma(c + 1) - math.lgamma(n - c + 1) for c in counts])
        hits = 100 * np.array(
            [
                np.exp(logs + counts * np.log(q) + (n - counts) * np.log1p(-q))[(lows <= q) & (q <= highs)].sum()
                for q in np.linspace(0.1, 0.9, 801)
            ]
        )
        print(f"| {n} | {hits.min():.1f} | {hits.mean():.1f} | {hits.max():.1f} |", flush=True)
    print()


def draw(rng: np.random.Generator, p: float, icc: float, size: tuple[int, ...]) -> np.ndarray:
    """Chances of a right answer."""
    if icc == 0:
        return np.full(size, p)
    weight = 1 / icc - 1
    return rng.beta(p * weight, (1 - p) * weight, size)


def clustered_coverage(rng: np.random.Generator, n: int, p: float, icc: float, samples: int, reps: int) -> float:
    hits = 0
    for _ in range(reps):
        counts = rng.binomial(samples, draw(rng, p, icc, (n,))).tolist()
        # the estimate depends on a prompt's mean and its number of samples alone
        found = clustered([[c / samples] * samples for c in counts])
        hits += found.low <= p <= found.high
    return hits / reps


def pass_coverage(rng: np.random.Generator, n: int, p: float, icc: float, samples: int, k: int, reps: int) -> float:
    weight = 1 / icc - 1
    a, b = p * weight, (1 - p) * weight
    miss = math.exp(math.lgamma(b + k) + math.lgamma(a + b) - math.lgamma(b) - math.lgamma(a + b + k))
    hits = 0
    for _ in range(reps):
        counts = rng.binomial(samples, draw(rng, p, icc, (n,))).tolist()
        found = pass_at_k_interval([(samples, c) for c in counts], k)
        hits += found.low <= 1 - miss <= found.high
    return hits / reps


def paired_size(rng: np.random.Generator, n: int, p: float, icc: float, samples: int, reps: int) -> float:
    rejected = 0
    for _ in range(reps):
        chances = draw(rng, p, icc, (n,))
        a = (rng.binomial(samples, chances) / samples).tolist()
        b = (rng.binomial(samples, chances) / samples).tolist()
        rejected += paired_clustered([[x] for x in a], [[x] for x in b]).p_value < 0.05
    return rejected / reps


def mcnemar_size(rng: np.random.Generator, n: int, p: float, icc: float, reps: int) -> float:
    chances = draw(rng, p, icc, (reps, n))
    a, b = rng.random((reps, n)) < chances, rng.random((reps, n)) < chances
    only_a, only_b = (a & ~b).sum(1), (b & ~a).sum(1)
    return float(np.mean([mcnemar_exact(int(x), int(y)) < 0.05 for x, y in zip(only_a, only_b, strict=True)]))


def print_power(rng: np.random.Generator, reps: int) -> None:
    """Whether a difference of the promised size is found as often as promised."""
    print("Power at the difference `min_detectable` names for 80 %, paired yes/no answers, %\n")
    print("| prompts | disagree | detectable | paired t | exact McNemar |")
    print("|---:|---:|---:|---:|---:|")
    for n in (128, 256, 512, 1024):
        for disagree in (0.1, 0.2, 0.4):
            gap = min_detectable(n, disagree)
            found = rng.multinomial(n, [(disagree + gap) / 2, (disagree - gap) / 2, 1 - disagree], reps)
            exact = np.mean([mcnemar_exact(int(x), int(y)) < 0.05 for x, y, _ in found])
            paired = np.mean([paired_p(int(x), int(y), n) < 0.05 for x, y, _ in found[: reps // 5]])
            print(f"| {n} | {disagree} | {gap:.3f} | {100 * paired:.1f} | {100 * exact:.1f} |", flush=True)
    print()


def paired_p(wins: int, losses: int, n: int) -> float:
    a = [[0.0]] * wins + [[1.0]] * losses + [[0.0]] * (n - wins - losses)
    b = [[1.0]] * wins + [[0.0]] * losses + [[0.0]] * (n - wins - losses)
    return paired_clustered(a, b).p_value


if __name__ == "__main__":
    main()
