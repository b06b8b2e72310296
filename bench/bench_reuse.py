"""What `sample.reuse` saves and costs: the quickstart over few rows, with and without, paired by seed.

    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python bench/bench_reuse.py RESULTS.jsonl --seeds 3
    PYTHONPATH=.:verifiers python bench/bench_reuse.py RESULTS.jsonl --summary

256 rows make 8 steps an epoch, 32 steps four passes; the warm-up is the quickstart's own, on all of its rows. Seconds are CPU seconds of one thread inside generation, scoring
included; both they and tokens are counted from the second pass on too, where reuse acts. Evaluations are not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS, PROMPTS, STEPS = 256, 32, 32
ARMS = {"off": None, "l=1": 1.0, "l=1.65": math.exp(0.5)}


def run_one(arm: str, seed: int, folder: Path, sets: list[str]) -> dict[str, Any]:
    """One run: per step the CPU seconds of generation, tokens and shares kept; the held-out score before and after."""
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.train.job import Job
    from grpo_cli.recipe.reading.load import load
    from grpo_cli.rollout.collect import Collect
    from grpo_cli.train.loop import Loop

    spent: list[float] = []
    sample, begin = Collect.sample, Loop.begin

    def timed(self: Any, *args: Any) -> Any:
        began = time.process_time()
        found = sample(self, *args)
        spent[-1] += time.process_time() - began
        return found

    def drawing(self: Any, *args: Any) -> Any:
        spent.append(0.0)
        return begin(self, *args)

    Collect.sample, Loop.begin = timed, drawing  # type: ignore[method-assign]
    lenience = ARMS[arm]
    chosen = [
        *(f"data.train.limit={ROWS}", f"sample.prompts={PROMPTS}", f"train.steps={STEPS}", "eval.limit=256"),
        *(f"train.seed={seed}", f"run.dir={folder}", "run.threads=1", "eval.greedy=false", "monitor.kl=off"),
        "sample.reuse=" + ("null" if lenience is None else f"{{lenience: {lenience}}}"),
        *sets,
    ]
    try:
        recipe = load(few_rows(folder), chosen)
        done = Job(recipe, label=arm, base=folder, display=make_display("none")).run()
    finally:
        Collect.sample, Loop.begin = sample, begin  # type: ignore[method-assign]
    steps = [line for line in done.run.metrics() if "reward/total/mean" in line]
    assert done.before is not None and done.after is not None
    return {
        "arm": arm,
        "seed": seed,
        "cpu_s": [round(s, 3) for s in spent],
        "tokens": [line["tokens/drawn"] for line in steps],
        "kept": [round(line.get("reuse/tokens", 0.0), 3) for line in steps],
        "whole": [round(line.get("reuse/whole", 0.0), 3) for line in steps],
        "signal": [line["group/signal"] for line in steps],
        "reward": [round(line["reward/total/mean"], 3) for line in steps],
        "before": done.before["eval/pass@1"],
        "after": done.after["eval/pass@1"],
        "half": done.after["eval/pass@1/half"],
    }


def few_rows(folder: Path) -> str:
    """The quickstart with rows of its own for the warm-up, so that `data.train.limit` leaves that as it is."""
    from ruamel.yaml import YAML

    from grpo_cli.recipe.reading.load import find

    yaml, file = YAML(typ="safe"), folder / "few.yaml"
    recipe = yaml.load(find("quickstart").read_text())
    for phase in recipe["warmup"]:
        phase["data"] = dict(recipe["data"]["train"])
    with file.open("w") as out:
        yaml.dump(recipe, out)
    return str(file)


def summary(results: list[dict[str, Any]]) -> str:
    """One line an arm: means over seeds; ratios are off / arm, geometric, with 95 % t intervals over seeds."""
    from scipy.stats import t

    def interval(values: list[float]) -> tuple[float, float]:
        mean, n = statistics.fmean(values), len(values)
        return mean, t.ppf(0.975, n - 1) * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.nan

    first = ROWS // PROMPTS
    base = {r["seed"]: r for r in results if r["arm"] == "off"}
    out = [
        f"{'arm':8}{'n':>2}  {'kept':>5} {'whole':>5} {'signal':>6}  {'tokens, all':22}{'later passes':22}{'CPU s, all':22}{'later passes':22}"
        f"{'held-out':>9}  {'minus off':14}"
    ]
    for arm in ARMS:
        runs = [r for r in results if r["arm"] == arm and r["seed"] in base]
        if not runs:
            continue
        line = f"{arm:8}{len(runs):2}  " + " ".join(
            f"{statistics.fmean(statistics.fmean(r[key][first:]) for r in runs):{width}.2f}"
            for key, width in (("kept", 5), ("whole", 5), ("signal", 6))
        )
        line += "  "
        for key in ("tokens", "cpu_s"):
            for start in (0, first):
                pairs = [(sum(base[r["seed"]][key][start:]), sum(r[key][start:])) for r in runs]
                mean, half = interval([math.log(a / b) for a, b in pairs])
                ratio = f"{math.exp(mean):.2f} [{math.exp(mean - half):.2f}, {math.exp(mean + half):.2f}]"
                line += f"{ratio:22}"
        mean, half = interval([r["after"] - base[r["seed"]]["after"] for r in runs])
        line += f"{statistics.fmean(r['after'] for r in runs):9.3f}  {mean:+.3f} ±{half:.3f}"
        out.append(line)
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--set", action="append", default=[], help="more of the recipe, for every arm")
    parser.add_argument("--summary", action="store_true", help="print what the file holds, run nothing")
    asked = parser.parse_args()
    lines = asked.results.read_text().splitlines() if asked.results.exists() else []
    results = [json.loads(line) for line in lines]
    if not asked.summary:
        from grpo_cli.commands.environment import quiet_libraries

        quiet_libraries()
        done = {(r["arm"], r["seed"]) for r in results}
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(asked.seeds):
                for arm in (arm for arm in asked.arms if (arm, seed) not in done):
                    result = run_one(arm, seed, Path(folder), asked.set)
                    results.append(result)
                    with asked.results.open("a") as file:
                        file.write(json.dumps(result) + "\n")
    print(summary(results))


if __name__ == "__main__":
    main()
