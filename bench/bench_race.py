"""A race to a fixed held-out score: methods and row selectors on small worlds, paired by seed.

    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python bench/bench_race.py RESULTS.jsonl --seeds 0 1 2 3 4 --jobs 2
    … bench_race.py RESULTS.jsonl --worlds E3 --methods uniform auto greso mopps ads shuffled --lr 4e-4 --steps 160
    PYTHONPATH=.:verifiers python bench/bench_race.py RESULTS.jsonl --summary

Each run stops at its second held-out evaluation in a row at or above the target, or after `--passes` passes over the rows.
Counted are generated tokens (those thrown away included), steps, and CPU seconds of training without evaluations. A run
that never gets there counts with what it had spent at the end, which flatters it; how many got there is printed.
`shuffled` is the placebo of `ads`: its windows over clusters whose rows were dealt out by chance.
Ratios are uniform / method, so above 1 the method was cheaper: geometric mean over seeds, 95 % t interval of the log.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from race_tasks import PROMPTS, TARGET, race_recipe, rows_of, write_model, write_world

METHODS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "auto": {"select": "auto"},
    "greso": {"select": "greso"},
    "mopps": {"select": "mopps"},
    "ads": {"select": "ads"},
    "shuffled": {"select": "ads"},
    "dapo": {"algorithm": "dapo", "overlong": None},
    "grpo": {"algorithm": "grpo"},
    "gspo": {"algorithm": "gspo"},
}
PASSES, EVERY, LR = 24, 8, 1e-4


@dataclass(frozen=True)
class Ask:
    """One run."""

    world: str
    method: str
    seed: int
    lr: float
    prompts: int
    passes: int
    steps: int | None = None
    target: float = TARGET


def run_one(ask: Ask) -> dict[str, Any]:
    """Train until the target or the cap, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return run_in(Path(folder), ask)


def run_in(folder: Path, ask: Ask) -> dict[str, Any]:
    """Train until the target or the cap."""
    from grpo_cli.commands.environment import quiet_libraries

    quiet_libraries()
    from grpo_cli.display.choose import make_display
    from grpo_cli.errors import Exit
    from grpo_cli.jobs.train.job import Job
    from grpo_cli.recipe.sections.recipe import Recipe

    class Race(Job):
        spent, eval_cpu = 0.0, 0.0

        def evaluate(self, step: int) -> None:
            began = time.process_time()
            if step == 0:
                Race.spent = began
            super().evaluate(step)
            Race.eval_cpu += time.process_time() - began
            last = [e["eval/pass@1"] for e in self.running.evaluations[-2:]]
            if len(last) == 2 and min(last) >= ask.target:
                self.interrupts.asked = Exit.TERMINATED

    if ask.method == "shuffled":
        shuffle_clusters(ask.seed)
    write_world(ask.world, folder, ask.seed)
    write_model(folder / "model")
    recipe = race_recipe(
        folder,
        METHODS[ask.method],
        seed=ask.seed,
        lr=ask.lr,
        prompts=ask.prompts,
        steps=ask.steps or ask.passes * rows_of(ask.world) // ask.prompts,
        every=EVERY,
    )
    done = Race(Recipe.model_validate(recipe), label="race", base=folder, display=make_display("none")).run()
    lines = done.run.metrics()
    scores = [line["eval/pass@1"] for line in lines if "eval/pass@1" in line]
    steps = [line for line in lines if "reward/total/mean" in line]
    return {
        **asdict(ask),
        "reached": len(scores) > 1 and min(scores[-2:]) >= ask.target,
        "steps": len(steps),
        "tokens": sum(line["tokens/drawn"] for line in steps),
        "cpu_s": round(time.process_time() - Race.spent - Race.eval_cpu, 2),
        "start": scores[0],
        "best": max(scores),
        "curve": [round(score, 3) for score in scores],
        "signal": round(statistics.fmean(line["group/signal"] for line in steps), 3),
        "early": round(statistics.fmean(line["group/signal"] for line in steps[:20]), 3),
        "persistence": steps[-1].get("rows/persistence"),
        "by_history": round(statistics.fmean(line["rows/by_history"] for line in steps), 3),
    }


def shuffle_clusters(seed: int) -> None:
    """From now on this process deals the rows out to the clusters of `ads` by chance, sizes as they were."""
    import random

    from grpo_cli.curriculum.ads import Clusters
    from grpo_cli.jobs.train import setup

    make = setup.clusters_of_run

    def shuffled(*args: Any, **more: Any) -> Clusters:
        found = make(*args, **more)
        rows = [row for own in found.members for row in own]
        random.Random(seed).shuffle(rows)
        deal = iter(rows)
        return Clusters(tuple(tuple(next(deal) for _ in own) for own in found.members), found.ranked)

    setup.clusters_of_run = shuffled


def summary(results: list[dict[str, Any]]) -> str:
    """One line a world and method."""
    from scipy.stats import t

    target = ", ".join(map(str, sorted({r.get("target", TARGET) for r in results})))
    out = [
        f"target {target} held-out pass@1 at two evaluations running; ratio uniform / method, 95 % interval over seeds"
    ]
    out.append(
        f"{'world':6}{'method':10}{'n':>3}{'got there':>10}{'tokens':>10}   {'ratio':22}{'steps':>7}{'cpu s':>8}   {'ratio':22}{'signal':>7}"
    )
    for world in sorted({r["world"] for r in results}):
        base = {r["seed"]: r for r in results if r["world"] == world and r["method"] == "uniform"}
        for method in METHODS:
            runs = [r for r in results if r["world"] == world and r["method"] == method and r["seed"] in base]
            if not runs:
                continue
            ratios = {}
            for key in ("tokens", "cpu_s"):
                logs = [math.log(base[r["seed"]][key] / r[key]) for r in runs]
                mean = statistics.fmean(logs)
                half = (
                    t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
                    if len(logs) > 1
                    else math.nan
                )
                ratios[key] = f"{math.exp(mean):.2f} [{math.exp(mean - half):.2f}, {math.exp(mean + half):.2f}]"
            middle = {key: statistics.fmean(r[key] for r in runs) for key in ("tokens", "steps", "cpu_s", "signal")}
            out.append(
                f"{world:6}{method:10}{len(runs):3}{sum(r['reached'] for r in runs):10}{middle['tokens']:10.0f}   {ratios['tokens']:22}"
                f"{middle['steps']:7.0f}{middle['cpu_s']:8.1f}   {ratios['cpu_s']:22}{middle['signal']:7.2f}"
            )
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--worlds", nargs="+", default=["E2", "E1"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--lr", type=float, default=LR)
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--steps", type=int, help="most steps, in place of `--passes`")
    parser.add_argument("--target", type=float, default=TARGET, help="held-out pass@1 that ends a run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time, a thread each")
    parser.add_argument("--summary", action="store_true", help="print what the file holds, run nothing")
    asked = parser.parse_args()
    text = asked.results.read_text() if asked.results.exists() else ""
    results = [json.loads(line) for line in text.splitlines()]
    if not asked.summary:
        done = {(r["world"], r["method"], r["seed"], r["lr"], r["prompts"]) for r in results}
        wanted = [
            Ask(world, method, seed, asked.lr, asked.prompts, asked.passes, asked.steps, asked.target)
            for seed, world, method in product(asked.seeds, asked.worlds, asked.methods)
            if (world, method, seed, asked.lr, asked.prompts) not in done
        ]
        with tempfile.TemporaryDirectory() as cache:
            os.environ["GRPO_CACHE"] = cache
            # a process a run: CPU seconds are a process's
            with get_context("spawn").Pool(asked.jobs, maxtasksperchild=1) as pool:
                for found in pool.imap_unordered(run_one, wanted):
                    results.append(found)
                    with asked.results.open("a") as stream:
                        stream.write(json.dumps(found) + "\n")
                    print(json.dumps(found), file=sys.stderr, flush=True)
    print(summary(results))


if __name__ == "__main__":
    main()
