"""Preferences and stages against plain GRPO, at equal generated tokens, paired by seed; every run is a process of its own.

    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python bench/bench_prefer.py FOLDER --race prefer --tune -j 16
    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python bench/bench_prefer.py FOLDER --race prefer -j 16
    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python bench/bench_prefer.py FOLDER --race stages -j 16

The world is quickstart's: three-digit sums, a base model that can add and mostly blurts out. `prefer`: 64 samples of 200 rows
once, one epoch of pairs; GRPO draws until it has spent as many tokens as `dpo` of the same seed, and its last evaluation within
them counts. The learning rate of every arm is the best of three on two seeds of its own (`--tune`, seeds 100 and 101).
`stages`: RL 20, supervised on its own right samples from the base, RL 20, against RL 40; the placebo learns from wrong ones.
What came of a run stands in FOLDER/results.jsonl as it ends: a second call runs what is not there, and goes on in a run that
was broken off. Differences are arm less `grpo` (`rl40`), t interval over seeds; of each stage it is said what it began and
ended with.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_cli.statistics.estimate import across_seeds

ONCE = ["sample.prompts=200", "sample.group=64", "train.steps=1", "train.method=prefer", "prefer.length_gap=0.5"]
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
Found = dict[str, Any]
"""What came of a run."""


@dataclass(frozen=True)
class Ask:
    """One run: `name` is its folder."""

    name: str
    arm: str
    seed: int
    lr: float | None
    recipe: str
    sets: Sequence[str]


def run_one(folder: Path, ask: Ask) -> dict[str, Any] | None:
    """Train, or go on where an earlier call stopped; what came of it, None where it did not end."""
    run = folder / "runs" / ask.name
    sets = [*ask.sets, f"train.seed={ask.seed}", f"run.name={ask.name}", f"run.dir={folder / 'runs'}"]
    sets += [f"train.lr={ask.lr}"] if ask.lr is not None else []
    command = [sys.executable, "-m", "grpo_cli", "train", ask.recipe, "--display", "none"]
    command += [part for one in sets for part in ("--set", one)]
    command += ["--resume", str(run)] if (run / "run.json").is_file() else []
    env = os.environ | {"GRPO_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    print(f"{ask.name} {done.returncode} {done.stderr.strip()[-200:]}", file=sys.stderr, flush=True)
    return {"name": ask.name, "arm": ask.arm, "seed": ask.seed, "lr": ask.lr} | outcome(run) if is_done(run) else None


def is_done(run: Path) -> bool:
    """Whether a run came to its end."""
    file = run / "run.json"
    return file.is_file() and json.loads(file.read_text()).get("status") == "done"


def outcome(run: Path) -> dict[str, Any]:
    """Held-out scores with the tokens drawn up to each, all tokens, stages, answers of the last samples."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    curve, spent = [], 0
    for line in lines:
        spent += line.get("tokens/drawn") or 0
        if "eval/pass@1" in line:
            curve.append([spent, line["eval/pass@1"]])
    last = [line for line in lines if "eval/pass@1" in line][-1]
    return {
        "curve": curve,
        "tokens": spent,
        "stages": json.loads((run / "run.json").read_text()).get("stages"),
        "end": {key: value for key, value in last.items() if key.startswith("eval/")},
    }


def score(one: Found, budget: float = float("inf")) -> tuple[float, float, int]:
    """First and last held-out pass@1, the last one measured before more than `budget` tokens were spent, and those tokens."""
    within = [point for point in one["curve"] if point[0] <= budget]
    return one["curve"][0][1], within[-1][1], within[-1][0]


def asks_of_prefer(there: Mapping[str, Found], seeds: Sequence[int], *, tunes: bool) -> list[Ask]:
    """The runs of a race; with `tunes` those that choose the rates."""
    found = []
    for arm, sets in PREFER.items():
        if tunes and arm in LIKE:
            continue
        rates = RATES.get(arm, OTHERS)
        for seed in TUNING if tunes else seeds:
            for lr in rates if tunes else [best_rate(there, arm)]:
                found.append(Ask(f"prefer-{arm}-{lr:g}-{seed}", arm, seed, lr, "quickstart", sets))
    return found


def best_rate(there: Mapping[str, Found], arm: str) -> float:
    """The rate with the best mean over the tuning seeds."""
    arm = LIKE.get(arm, arm)

    def mean(lr: float) -> float:
        return statistics.fmean(score(there[f"prefer-{arm}-{lr:g}-{seed}"])[1] for seed in TUNING)

    return max(RATES.get(arm, OTHERS), key=mean)


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


def summary_of_stages(there: Mapping[str, Found], seeds: Sequence[int]) -> str:
    """The arms, then the stages of each arm that has several."""
    found = {arm: [one for one in there.values() if one["arm"] == arm and one["seed"] in seeds] for arm in STAGES}
    found = {arm: runs for arm, runs in found.items() if runs}
    out = [table({arm: {one["seed"]: score(one) for one in runs} for arm, runs in found.items()}, "rl40")]
    for arm, runs in found.items():
        for at, stage in enumerate(runs[0]["stages"]):
            before, after = ([one["stages"][at][when]["pass@1"] for one in runs] for when in ("before", "after"))
            said = " -> ".join(across(values) for values in (before, after))
            gap = across([b - a for a, b in zip(before, after, strict=True)])
            out.append(f"{arm:12}{len(runs):3}  {stage['name']:8}{said}   {gap}")
    return "\n".join(out)


def across(values: Sequence[float]) -> str:
    """Mean and 95 % t interval over seeds; the mean alone of one."""
    if len(values) < 2:
        return f"{values[0]:.3f}"
    said = across_seeds(values)
    return f"{said.mean:.3f} [{said.low:.3f}, {said.high:.3f}]"


def summary_of_prefer(there: Mapping[str, Found], seeds: Sequence[int]) -> str:
    """The arms and their rates."""
    found: dict[str, dict[int, tuple[float, float, int]]] = {}
    for arm in PREFER:
        for seed in seeds:
            run = there.get(f"prefer-{arm}-{best_rate(there, arm):g}-{seed}")
            dpo = there.get(f"prefer-dpo-{best_rate(there, 'dpo'):g}-{seed}")
            if run is not None and dpo is not None:
                budget = dpo["tokens"] if arm == "grpo" else float("inf")
                found.setdefault(arm, {})[seed] = score(run, budget)
    rates = ", ".join(f"{arm} {best_rate(there, arm):g}" for arm in PREFER)
    return f"{table(found, 'grpo')}\nlearning rates: {rates}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--race", choices=["prefer", "stages"], required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--tune", action="store_true", help="run what chooses the learning rates")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "results.jsonl"
    rows = [json.loads(line) for line in file.open()] if file.exists() else []
    there: dict[str, Found] = {one["name"]: one for one in rows}
    if asked.race == "prefer":
        asks = asks_of_prefer(there, asked.seeds, tunes=asked.tune)
    else:
        asks = [
            Ask(f"stages-{arm}-{seed}", arm, seed, None, recipe, sets)
            for arm, (recipe, sets) in STAGES.items()
            for seed in asked.seeds
        ]
    with ThreadPoolExecutor(asked.jobs) as pool:
        waiting = [pool.submit(run_one, folder, ask) for ask in asks if ask.name not in there]
        for one in as_completed(waiting):
            if (found := one.result()) is not None:
                there[found["name"]] = found
                with file.open("a") as stream:
                    stream.write(json.dumps(found) + "\n")
    if not asked.tune:
        show = summary_of_prefer if asked.race == "prefer" else summary_of_stages
        print(show(there, asked.seeds))


if __name__ == "__main__":
    main()
