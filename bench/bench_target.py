"""Time to target of the quickstart, `grpo train` against a plain `GRPOTrainer` script, paired by seed.

    PYTHONPATH=.:verifiers python bench/bench_target.py [--seeds 5] [--threads 1] [--jobs 1]

Both start from the same warm model, read the same rows and use the recipe's hyper-parameters. The target is a held-out
sampled pass@1 of .85 at two evaluations running, one every five steps; evaluations, warm-up and start-up do not count
(start-up to the first step is printed apart). Seconds are CPU seconds of the process, so that a busy machine does no
harm; a run that does not get there counts with all it spent. Ratios are geometric means over seeds. `--jobs` races that
many seeds at once, each on `--threads` cores; the two sides of a seed always run one after the other.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).parent


def prepare(folder: Path, seed: int, threads: int) -> None:
    """The warm model of this seed, the rows, and the recipe's settings."""
    import torch

    from grpo_cli.data.rows import load_rows
    from grpo_cli.policy.coldstart import cold_start
    from grpo_cli.policy.model import load_model
    from grpo_cli.recipe.reading.load import load

    torch.set_num_threads(threads)
    recipe = load("quickstart", [f"train.seed={seed}"])
    train, held_out = (load_rows(recipe.data, which) for which in ("train", "eval"))
    loaded = load_model(recipe.model, device=torch.device("cpu"), seed=seed)
    cold_start(
        loaded,
        [(phase, train) for phase in recipe.warmup or []],
        model_key=f"{recipe.model.model_dump_json()}/cpu/{threads}",
        seed=seed,
        on_progress=lambda done, total: None,
    )
    loaded.model.save_pretrained(folder / "model")
    loaded.tokenizer.save_pretrained(folder / "model")
    for name, rows in (("train", train), ("eval", held_out[: recipe.eval.limit])):
        lines = [json.dumps({"prompt": row.messages, "answer": row.fields["answer"]}) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    settings = {
        **recipe.sample.model_dump(include={"prompts", "group", "max_tokens", "temperature"}),
        **recipe.train.model_dump(include={"steps", "lr", "lr_warmup_steps", "schedule", "loss"}),
        "eval_samples": recipe.eval.samples,
        "seed": seed,
        "threads": threads,
    }
    (folder / "settings.json").write_text(json.dumps(settings))


def race(seed: int, threads: int) -> dict[str, dict[str, Any]]:
    """Both sides, one after the other; odd seeds start with ours."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warm = ["--prepare", name, "--first", str(seed), "--threads", str(threads)]
        process(["bench_target.py", *warm], folder, threads)
        sides = [("plain", "plain_grpo.py"), ("own", "own_grpo.py")]
        found = {side: run(script, folder, threads) for side, script in sides[:: 1 - 2 * (seed % 2)]}
    print(json.dumps({"seed": seed, **found}), file=sys.stderr, flush=True)
    return found


def run(script: str, folder: Path, threads: int) -> dict[str, Any]:
    """One side of the race in a process of its own."""
    said = process([script, str(folder), str(time.time())], folder, threads)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def process(command: list[str], folder: Path, threads: int) -> str:
    """What a script of this folder prints on stdout."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "verifiers"), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "datasets"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    script, *rest = command
    done = subprocess.run(
        [sys.executable, str(HERE / script), *rest], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def geometric(ratios: list[float]) -> str:
    """Mean with its 95 % interval over seeds (t of the logs)."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.2f}"
    from scipy.stats import t

    half = t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.2f} [{math.exp(mean - half):.2f}, {math.exp(mean + half):.2f}]"


def summary(runs: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Means of both sides and their ratios, plain over own: above 1 `grpo` was faster."""
    out: dict[str, Any] = {"seeds": len(runs)}
    for side in ("plain", "own"):
        mine = [pair[side] for pair in runs]
        out[side] = {
            "reached": sum(r["reached"] for r in mine),
            **{
                key: round(statistics.fmean(r[key] for r in mine), 2)
                for key in ("steps", "cpu_s", "wall_s", "startup_cpu_s", "startup_wall_s")
            },
            "cpu_s_a_step": round(statistics.fmean(r["cpu_s"] / r["steps"] for r in mine), 3),
        }
    for key, label in (("cpu_s", "time_to_target"), ("wall_s", "time_to_target_wall"), ("startup_cpu_s", "startup")):
        out[f"ratio_{label}"] = geometric([pair["plain"][key] / pair["own"][key] for pair in runs])
    each = [
        (pair["plain"]["cpu_s"] / pair["plain"]["steps"]) / (pair["own"]["cpu_s"] / pair["own"]["steps"])
        for pair in runs
    ]
    out["ratio_step"] = geometric(each)
    return out


def main() -> None:
    """Prints each pair on stderr as it ends, and the summary on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="seeds at once")
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.prepare is not None:
        prepare(args.prepare, args.first, args.threads)
        return
    seeds = range(args.first, args.first + args.seeds)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = list(pool.map(lambda seed: race(seed, args.threads), seeds))
    print(json.dumps(summary(runs), indent=1))


if __name__ == "__main__":
    main()
