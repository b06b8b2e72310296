"""Preferences and stages against plain GRPO, at equal generated tokens, paired by seed; every run is a process of its own.

    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python tests/bench/bench_prefer.py FOLDER --race prefer --tune -j 16
    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python tests/bench/bench_prefer.py FOLDER --race prefer -j 16
    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python tests/bench/bench_prefer.py FOLDER --race stages -j 16

The world is quickstart's: three-digit sums, a base model that can add and mostly blurts out. `prefer`: 64 samples of 200 rows
once, one epoch of pairs; GRPO draws until it has spent as many tokens as `dpo` of the same seed, and its last evaluation within
them counts. The learning rate of every arm is the best of three on two seeds of its own (`--tune`, seeds 100 and 101).
`stages`: RL 20, supervised on its own right samples from the base, RL 20, against RL 40; the placebo learns from wrong ones.
What is done stays in FOLDER: a second call goes on. Differences are arm less `grpo` (`rl40`), t interval over seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_cli.statistics.estimate import across_seeds

ONCE = [
    "sample.prompts=200",
    "sample.group=64",
    "train.steps=1",
    "train.method=prefer",
    "prefer.length_gap=0.5",
]
PREFER: dict[str, list[str]] = {
    "grpo": ["train.steps=80", "train.schedule=constant", "eval.every=2"],
    **{loss: [*ONCE, f"prefer.loss={loss}"] for loss in ("dpo", "ipo", "irpo", "kto", "orpo", "simpo")},
    "dpo_placebo": [*ONCE, "prefer.loss=dpo", "train.control=shuffled"],
    "kto_placebo": [*ONCE, "prefer.loss=kto", "train.control=shuffled"],
    "dpo_rounds": [*ONCE, "prefer.loss=dpo", "train.steps=4", "sample.prompts=50"],
}
RATES: dict[str, list[float]] = {"grpo": [2e-4, 5e-4, 1e-3]}
"""Learning rates tried; the losses of pairs want smaller ones."""
OTHERS = [3e-5, 1e-4, 3e-4]
LIKE = {"dpo_placebo": "dpo", "kto_placebo": "kto", "dpo_rounds": "dpo"}
"""Arms that take the rate of another."""
REJECT = "stages.2.sft.0.data.options.only"
STAGES: dict[str, tuple[str, list[str]]] = {
    "rl40": ("r1-zero", ["eval.every=10", "stages.0.train.steps=40"]),
    "r1": ("r1", []),
    "r1_placebo": ("r1", [f"{REJECT}=wrong"]),
}
TUNING = (100, 101)


@dataclass(frozen=True)
class Ask:
    """One run: `name` is its folder."""

    name: str
    arm: str
    seed: int
    lr: float | None
    recipe: str
    sets: Sequence[str]


def run_one(folder: Path, ask: Ask) -> None:
    """Train, or go on where an earlier call stopped; nothing to do for a run that is done."""
    run = folder / "runs" / ask.name
    if status(run) == "done":
        return
    sets = [*ask.sets, f"train.seed={ask.seed}", f"run.name={ask.name}", f"run.dir={folder / 'runs'}"]
    sets += [f"train.lr={ask.lr}"] if ask.lr is not None else []
    command = [sys.executable, "-m", "grpo_cli", "train", ask.recipe, "--display", "none"]
    command += [part for one in sets for part in ("--set", one)]
    command += ["--resume", str(run)] if (run / "run.json").is_file() else []
    env = os.environ | {"GRPO_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    print(f"{ask.name} {done.returncode} {done.stderr.strip()[-200:]}", file=sys.stderr, flush=True)


def status(run: Path) -> str:
    """How a run ended; empty where there is none."""
    file = run / "run.json"
    return str(json.loads(file.read_text()).get("status")) if file.is_file() else ""


def lines(run: Path) -> list[dict[str, Any]]:
    """Its metrics."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def tokens(run: Path) -> int:
    """Generated for training."""
    return sum(line.get("tokens/drawn") or 0 for line in lines(run))


def score(run: Path, budget: float = float("inf")) -> tuple[float, float, int]:
    """First and last held-out pass@1, the last one measured before more than `budget` tokens were spent, and those tokens."""
    spent = at = 0
    found: list[float] = []
    for line in lines(run):
        spent += line.get("tokens/drawn") or 0
        if spent > budget:
            break
        if "eval/pass@1" in line:
            found.append(line["eval/pass@1"])
            at = spent
    return found[0], found[-1], at


def asks_of_prefer(folder: Path, seeds: Sequence[int], *, tunes: bool) -> list[Ask]:
    """The runs of a race; with `tunes` those that choose the rates."""
    found = []
    for arm, sets in PREFER.items():
        if tunes and arm in LIKE:
            continue
        rates = RATES.get(arm, OTHERS)
        for seed in TUNING if tunes else seeds:
            for lr in rates if tunes else [best_rate(folder, arm)]:
                found.append(Ask(f"prefer-{arm}-{lr:g}-{seed}", arm, seed, lr, "quickstart", sets))
    return found


def best_rate(folder: Path, arm: str) -> float:
    """The rate with the best mean over the tuning seeds."""
    arm = LIKE.get(arm, arm)
    rates = RATES.get(arm, OTHERS)

    def mean(lr: float) -> float:
        runs = [folder / "runs" / f"prefer-{arm}-{lr:g}-{seed}" for seed in TUNING]
        return statistics.fmean(score(run)[1] for run in runs)

    return max(rates, key=mean)


def table(found: Mapping[str, Mapping[int, tuple[float, float, int]]], against: str) -> str:
    """One line an arm: before, after, tokens, and the paired difference."""
    out = [f"{'arm':12}{'n':>3}  {'before':>7}{'after':>8}{'tokens':>9}   after less {against}, 95 %"]
    for arm, runs in found.items():
        shared = sorted(runs.keys() & found[against].keys())
        gap = across_seeds([runs[s][1] - found[against][s][1] for s in shared])
        before, after, spent = (statistics.fmean(run[i] for run in runs.values()) for i in range(3))
        said = f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" if arm != against else ""
        out.append(f"{arm:12}{len(runs):3}  {before:7.3f}{after:8.3f}{spent:9.0f}   {said}")
    return "\n".join(out)


def summary(folder: Path, race: str, seeds: Sequence[int]) -> str:
    """What is done so far."""
    found: dict[str, dict[int, tuple[float, float, int]]] = {}
    if race == "stages":
        for arm in STAGES:
            runs = {seed: folder / "runs" / f"stages-{arm}-{seed}" for seed in seeds}
            found[arm] = {seed: score(run) for seed, run in runs.items() if status(run) == "done"}
        return table({arm: runs for arm, runs in found.items() if runs}, "rl40")
    for arm in PREFER:
        for seed in seeds:
            run = folder / "runs" / f"prefer-{arm}-{best_rate(folder, arm):g}-{seed}"
            dpo = folder / "runs" / f"prefer-dpo-{best_rate(folder, 'dpo'):g}-{seed}"
            if status(run) == status(dpo) == "done":
                found.setdefault(arm, {})[seed] = score(run, tokens(dpo) if arm == "grpo" else float("inf"))
    rates = ", ".join(f"{arm} {best_rate(folder, arm):g}" for arm in PREFER)
    return f"{table(found, 'grpo')}\nlearning rates: {rates}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--race", choices=["prefer", "stages"], required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--tune", action="store_true", help="run what chooses the learning rates")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    if asked.race == "prefer":
        asks = asks_of_prefer(folder, asked.seeds, tunes=asked.tune)
    else:
        asks = [
            Ask(f"stages-{arm}-{seed}", arm, seed, None, recipe, sets)
            for arm, (recipe, sets) in STAGES.items()
            for seed in asked.seeds
        ]
    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(lambda ask: run_one(folder, ask), asks))
    if not asked.tune:
        print(summary(folder, asked.race, asked.seeds))


if __name__ == "__main__":
    main()
