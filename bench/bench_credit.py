"""A race on `environments:keydoor`: GRPO, RLOO, credit for turns, PPO and a placebo, at equal generated tokens, paired by seed.

The embedded model can compare no numbers, so from a warm-up of random moves alone no method found the way (128 episodes a
batch, 30 batches: .20 before and after). Here a share of the moves that the warm-up shows leads to the goal: enough to
read where one is, not enough to get there. Episodes have about as many turns as the longest way takes.

    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python bench/bench_credit.py FOLDER --tune -j 16
    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python bench/bench_credit.py FOLDER -j 16
    PYTHONPATH=.:verifiers python bench/bench_credit.py FOLDER --summary

The first finds each arm's rate on the same grid, with a seed that the race does not use: the target reached, in fewest
episodes, else the higher end; the placebo takes GRPO's. The second races every arm at its own rate. PPO draws as many
episodes a batch, each of a layout of its own; five of its batches teach the critic alone, none in `ppo_cold`; `ppo_16` has
the layouts of the others. It makes four updates a batch, as `grpo_4` does. A run ends with the batch in which it has drawn `--tokens` tokens of the model's
own; success is the share of a batch's fresh episodes that reach the door, so it is measured on layouts as they come.
Counted are episodes until two batches running are at or above the target; a run that never gets there counts with all it
drew, which flatters it, and how many got there is printed. `end less grpo` is paired by seed, at equal tokens. Runs stand in FOLDER/results.jsonl as they end: call again and
those that are there are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

TARGET = 0.8
PROMPTS, GROUP = 16, 8
CRITIC = {"lr": 1e-3, "warmup_steps": 5}
"""The critic's rate was set before the first run and is not tuned."""
ARMS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "grpo_4": {"mini_batches": 4},
    "rloo": {"algorithm": "rloo", "kl": {"beta": 0.0}},
    "gigpo": {"scale": "none", "credit": {"method": "gigpo"}},
    "gigpo_std": {"credit": {"method": "gigpo"}},
    "milestones": {"credit": {"method": "milestones"}},
    "ppo": {"algorithm": "ppo", "critic": CRITIC},
    "ppo_cold": {"algorithm": "ppo", "critic": {**CRITIC, "warmup_steps": 0}},
    "ppo_16": {"algorithm": "ppo", "critic": CRITIC},
    "random": {"control": "random"},
}
ALONE = ("ppo", "ppo_cold")
"""Arms whose batch has a layout for each episode."""
LIKE = {"random": "grpo"}
"""Arms that take the rate of another."""
RATES = (1e-4, 3e-4, 6e-4, 1e-3)
TUNING, RACING = (100,), (0, 1, 2, 3, 4)
TURNS = {3: 8, 4: 12, 5: 16, 6: 20}
"""Turns of an episode by the width of the grid: those of the longest way."""
TOWARD = 0.4
"""Share of the moves in the warm-up that lead to the goal."""
TOKENS_A_TURN = 12
"""Most tokens of a turn with its observation and what the template puts between them; the budget of an episode."""


@dataclass(frozen=True)
class Ask:
    """One run."""

    arm: str
    rate: float
    seed: int
    grid: int
    tokens: int
    folder: str


def recipe_of(ask: Ask, folder: Path) -> dict[str, Any]:
    """The recipe of a run: a warm-up that shows moves, few of them on the way, then the arm's method."""
    turns = TURNS[ask.grid]
    group = 1 if ask.arm in ALONE else GROUP
    return {
        "grpo": 1,
        "model": {"path": "builtin:tiny", "context": 1024},
        "data": {
            "train": {"from": "tasks:keydoor", "limit": 2000, "options": {"grid": ask.grid}},
            "prompt": "{question}",
        },
        "environment": {
            "python": "environments:keydoor",
            "options": {"toward": TOWARD},
            "invalid_penalty": 0.0,
            "max_turns": turns,
            "turn_tokens": 3,
            "workers": 1,
        },
        "sample": {"prompts": PROMPTS * GROUP // group, "group": group, "max_tokens": turns * TOKENS_A_TURN},
        "train": {"steps": 10_000, "lr": ask.rate, "schedule": "constant", "seed": ask.seed, **ARMS[ask.arm]},
        "monitor": {"kl": "off"},
        "stop": {"on": []},
        "run": {
            "dir": str(folder),
            "name": f"{ask.arm}-{ask.rate:g}-{ask.seed}",
            "threads": 1,
            "save_every": 10_000,
            "keep": 1,
        },
        "warmup": [{"steps": 300, "lr": 3e-3, "muon_lr": 0.015, "batch": 32}],
    }


def run_one(ask: Ask) -> dict[str, Any]:
    """Train until the tokens are spent."""
    from grpo_cli.commands.environment import quiet_libraries

    quiet_libraries()
    from grpo_cli.display.choose import SilentDisplay
    from grpo_cli.errors import Exit
    from grpo_cli.jobs.train.job import Job
    from grpo_cli.recipe.sections.recipe import Recipe

    began = list[float]()

    class Purse(SilentDisplay):
        """Asks the run to end once its tokens are spent."""

        spent = 0

        def step(self, metrics: dict[str, Any], view: object = None) -> None:
            began.append(time.process_time())
            self.spent += int(metrics["tokens/drawn"])
            if self.spent >= ask.tokens:
                job.interrupts.asked = Exit.TERMINATED

    folder = Path(ask.folder) / "runs" / f"{ask.grid}x{ask.grid}" / f"{time.time_ns()}"
    recipe = Recipe.model_validate(recipe_of(ask, folder))
    job = Job(recipe, label="race", base=folder, display=Purse(sys.stderr))
    lines = job.run().run.metrics()
    steps = [line for line in lines if "reward/total/mean" in line]
    rights = [line["drawn/right"] for line in steps]
    twice = [i for i in range(1, len(rights)) if min(rights[i - 1 : i + 1]) >= TARGET]
    episodes = PROMPTS * GROUP
    shares = [line["credit/anchor_share"] for line in steps if "credit/anchor_share" in line]
    explained = [line["critic/explained_variance"] for line in steps if "critic/explained_variance" in line]
    return asdict(ask) | {
        "reached": bool(twice),
        "episodes": (twice[0] + 1 if twice else len(rights)) * episodes,
        "start": rights[0],
        "curve": [round(r, 3) for r in rights],
        "end": statistics.fmean(rights[-3:]),
        "drawn": sum(line["tokens/drawn"] for line in steps),
        "turns": steps[-1]["turns/mean"],
        "anchor_share": statistics.fmean(shares) if shares else None,
        "cpu_s": round(began[-1] - began[0], 1) if len(began) > 1 else None,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "critic_s": sum(line.get("time/critic") or 0.0 for line in steps),
        "critic_mib": max(line.get("critic/mib") or 0.0 for line in steps),
        "explained": explained,
    }


def rates(results: list[dict[str, Any]], grid: int) -> dict[str, float]:
    """The rate of each arm that was tuned: most runs at the target, then fewest episodes to it, then the higher end."""
    found = {}
    for arm in ARMS:
        runs = [r for r in results if r["arm"] == arm and r["grid"] == grid and r["seed"] in TUNING]
        scores = {rate: merit([r for r in runs if r["rate"] == rate]) for rate in {r["rate"] for r in runs}}
        if scores:
            found[arm] = max(scores, key=lambda rate: scores[rate])
    return found | {arm: found[like] for arm, like in LIKE.items() if like in found}


def merit(runs: list[dict[str, Any]]) -> tuple[int, float, float]:
    """What makes a rate better than another, most important first."""
    there = [r["episodes"] for r in runs if r["reached"]]
    return len(there), -statistics.fmean(there or [0]), statistics.fmean(r["end"] for r in runs)


def interval(values: list[float], show: Callable[[float], float] = float) -> str:
    """Mean and 95 % t interval, each as `show` turns it."""
    from scipy.stats import t

    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{show(mean):.3g}"
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{show(mean):.3g} [{show(mean - half):.3g}, {show(mean + half):.3g}]"


def summary(results: list[dict[str, Any]]) -> str:
    """The rates, and one line an arm."""
    out = list[str]()
    for grid in sorted({r["grid"] for r in results}):
        chosen = rates(results, grid)
        raced = [r for r in results if r["grid"] == grid and r["seed"] in RACING]
        ran = {r["arm"]: r["rate"] for r in raced}
        how = f"tuned rates {chosen}" if ran.items() <= chosen.items() else f"rates {ran}, not tuned"
        out += [
            f"keydoor {grid}x{grid}, {TURNS[grid]} turns, {PROMPTS} layouts x {GROUP} episodes a batch; {how}",
            f"{'arm':11}{'n':>3}{'got there':>10}  {'episodes to ' + str(TARGET):24}{'grpo / arm':22}{'start':>6}  {'end (last 3 batches)':22}{'end less grpo':24}{'anchors':>8}{'cpu s':>7}{'critic s':>9}{'peak MiB':>9}",
        ]
        base = {r["seed"]: r for r in raced if r["arm"] == "grpo"}
        for arm in ARMS:
            runs = [r for r in raced if r["arm"] == arm]
            if not runs:
                continue
            logs = [math.log(base[r["seed"]]["episodes"] / r["episodes"]) for r in runs if r["seed"] in base]
            ratio = interval(logs, math.exp) if logs else "—"
            gaps = [r["end"] - base[r["seed"]]["end"] for r in runs if r["seed"] in base]
            gap = interval(gaps) if gaps and arm != "grpo" else "—"
            shares = [r["anchor_share"] for r in runs if r["anchor_share"] is not None]
            out.append(
                f"{arm:11}{len(runs):3}{sum(r['reached'] for r in runs):10}  {interval([r['episodes'] for r in runs]):24}{ratio:22}"
                f"{statistics.fmean(r['start'] for r in runs):6.2f}  {interval([r['end'] for r in runs]):22}{gap:24}"
                f"{f'{statistics.fmean(shares):.2f}' if shares else '—':>8}{statistics.fmean(r['cpu_s'] or 0.0 for r in runs):7.0f}"
                f"{statistics.fmean(r['critic_s'] for r in runs):9.0f}{statistics.fmean(r['peak_mib'] for r in runs):9.0f}"
            )
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(RACING))
    parser.add_argument("--grid", type=int, default=4, choices=list(TURNS))
    parser.add_argument("--tokens", type=int, default=200_000, help="tokens that a run generates")
    parser.add_argument("--rate", type=float, help="race all arms at this rate, untuned")
    parser.add_argument("--tune", action="store_true", help="find the rates first")
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES), help="the grid of --tune")
    parser.add_argument("-j", type=int, default=1, help="runs at the same time, a thread each")
    parser.add_argument("--summary", action="store_true", help="print what is there, run nothing")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    file = asked.folder / "results.jsonl"
    results = [json.loads(line) for line in file.open()] if file.exists() else []
    if not asked.summary:
        chosen = rates(results, asked.grid) if asked.rate is None else dict.fromkeys(asked.arms, asked.rate)
        untuned = [arm for arm in asked.arms if arm not in chosen]
        if untuned and not asked.tune:
            parser.error(f"no rates for {', '.join(untuned)} yet: run with --tune first")
        pairs = (
            [(arm, rate, seed) for seed in TUNING for rate in asked.rates for arm in asked.arms if arm not in LIKE]
            if asked.tune
            else [(arm, chosen[arm], seed) for seed in asked.seeds for arm in asked.arms]
        )
        there = {(r["arm"], r["rate"], r["seed"], r["grid"], r["tokens"]) for r in results}
        wanted = [
            Ask(arm, rate, seed, asked.grid, asked.tokens, str(asked.folder.resolve()))
            for arm, rate, seed in pairs
            if (arm, rate, seed, asked.grid, asked.tokens) not in there
        ]
        os.environ.setdefault("GRPO_CACHE", str(asked.folder.resolve() / "cache"))
        # a process a run: CPU seconds are a process's
        with get_context("spawn").Pool(asked.j, maxtasksperchild=1) as pool:
            for found in pool.imap_unordered(run_one, wanted):
                results.append(found)
                with file.open("a") as stream:
                    stream.write(json.dumps(found) + "\n")
                print(json.dumps(found), file=sys.stderr, flush=True)
    print(summary(results))


if __name__ == "__main__":
    main()
