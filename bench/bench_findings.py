"""How far a probe's forecast of dead groups can be trusted, and how often findings are false, by simulation.

    python bench/bench_findings.py [--reps 300] [--runs 400] [--shaped 160] [--seed 0] > tables.md

Forecast: prompts draw their pass rate from the named distribution, 64 prompts x 8 samples are taken, the error of the
expected dead share and the coverage of its interval are over `reps` probes; group 8 is measured, 16 to 64 extrapolated.
Findings: share of simulated healthy runs (`tests/builders/simulated_runs.py`) that anything is said of; and of such runs whose
answers are paid for their form too (`tests/builders/paid_groups.py`), that W62 or W63 is said of, by outcome and by reward.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "verifiers")]

from grpo_cli.findings.health import over_run  # noqa: E402
from grpo_cli.findings.trends import trends  # noqa: E402
from grpo_cli.statistics.dead_groups import forecast  # noqa: E402
from tests.builders.paid_groups import shaped_run  # noqa: E402
from tests.builders.simulated_runs import simulate  # noqa: E402

GROUPS = (2, 4, 8, 16, 32, 64)
KINDS: dict[str, Callable[[random.Random], float]] = {
    "beta(0.5, 1.5)": lambda rng: rng.betavariate(0.5, 1.5),
    "beta(2, 2)": lambda rng: rng.betavariate(2, 2),
    "beta(0.3, 6)": lambda rng: rng.betavariate(0.3, 6),
    "all 0.1": lambda rng: 0.1,
    "a quarter 0, the rest uniform": lambda rng: 0.0 if rng.random() < 0.25 else rng.random(),
    "half 0, half uniform": lambda rng: 0.0 if rng.random() < 0.5 else rng.random(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--shaped", type=int, default=160, help="healthy runs that are shaped too")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print_forecast(args.reps, args.seed)
    print_silence(args.runs)
    print_shaped_silence(args.shaped)


def print_forecast(reps: int, seed: int) -> None:
    """Mean error and coverage by distribution and group size."""
    rng = random.Random(seed)
    print(
        f"Forecast of dead groups from 64 x 8 samples: mean error / coverage of the 95 % interval, {reps} probes each\n"
    )
    print("| pass rates | " + " | ".join(f"G={g}{'' if g <= 8 else '*'}" for g in GROUPS) + " |")
    print("|---|" + "---:|" * len(GROUPS))
    for name, draw in KINDS.items():
        many = [draw(rng) for _ in range(50_000)]
        truth = {g: fmean(p**g + (1 - p) ** g for p in many) for g in GROUPS}
        errors: dict[int, list[float]] = {g: [] for g in GROUPS}
        held = Counter[int]()
        for _ in range(reps):
            rates = [draw(rng) for _ in range(64)]
            counts = [(8, sum(rng.random() < p for _ in range(8))) for p in rates]
            for found in forecast(counts, GROUPS, seed):
                errors[found.group].append(found.dead.mean - truth[found.group])
                held[found.group] += found.dead.low <= truth[found.group] <= found.dead.high
        cells = (f"{fmean(errors[g]):+.3f} / {held[g] / reps:.0%}" for g in GROUPS)
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print("\n\\* extrapolated\n")


def print_silence(runs: int) -> None:
    """Healthy runs that something is said of, by code."""
    said, loud = Counter[str](), 0
    for seed in range(runs):
        history = simulate(seed=seed)
        codes = {finding.code for finding in [*over_run(history), *trends(history)]}
        said.update(codes)
        loud += bool(codes)
    by_code = ", ".join(f"{code} {count}" for code, count in sorted(said.items())) or "none"
    print(f"Healthy runs of 100 steps with a finding: {loud} of {runs} ({by_code})")


def print_shaped_silence(runs: int) -> None:
    """Healthy shaped runs that W62 or W63 is said of."""
    for size, alive_by in ((4, "outcome"), (8, "outcome"), (8, "reward")):
        said = Counter[str]()
        for seed in range(runs):
            history = shaped_run(seed, 60, size, alive_by=alive_by)
            said.update({f.code for f in over_run(history)} & {"W62", "W63"})
        print(
            f"Healthy shaped runs of 60 steps, 8 x {size}, `alive_by: {alive_by}`: W62 in {said['W62']} of {runs}, W63 in {said['W63']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
