"""Arms of one recipe beside each other, seed by seed: held-out scores, generated tokens, CPU seconds of each phase.

    python tests/bench/bench_arms.py warmup OUT --seeds 6 -j 8
    python tests/bench/bench_arms.py ppo OUT --seeds 5 -j 16

Each run is a `grpo train` of its own with two threads, in OUT/ARM-SEED; one that is done is not run again, one that was
broken off starts over. Nothing but this checkout is read. Scores are means over seeds with 95 % t intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Arm:
    """What is said beside the recipe, and set in the environment."""

    sets: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""torch and oneDNN without the instructions of later CPUs; with `avx2-mkl` MKL's products too."""
BEFORE = ("warmup.0.batch=64",)

RACES: dict[str, tuple[str, dict[str, Arm]]] = {
    "warmup": (
        "recipes/quickstart.yaml",
        {
            "native": Arm(),
            "avx2": Arm(env=AVX2),
            "avx2-mkl": Arm(env={**AVX2, "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
            "batch64": Arm(BEFORE),
        },
    ),
}
CRITIC = ("train.algorithm=ppo", "train.dead_groups=keep", "sample.prompts=256", "sample.group=1")
"""As many tokens a step as 32 groups of 8."""
RACES["ppo"] = (
    "recipes/quickstart.yaml",
    {
        "grpo": Arm(("train.algorithm=grpo", "train.kl.beta=0", "eval.every=10")),
        "rloo": Arm(("train.algorithm=rloo", "train.kl.beta=0", "eval.every=10")),
        "ppo": Arm((*CRITIC, "train.critic.warmup_steps=5", "eval.every=10")),
        "ppo-cold": Arm((*CRITIC, "train.critic.warmup_steps=0", "eval.every=10")),
        "ppo-share": Arm(
            (*CRITIC, "train.critic.warmup_steps=5", "train.critic.share=true", "eval.every=10")
        ),
    },
)

PHASES = ("setup", "warmup", "generate", "verify", "update", "critic", "evaluate")


def run(race: str, arm: str, seed: int, out: Path) -> dict[str, Any]:
    """Train one arm with one seed, unless that is done, and read what came of it."""
    recipe, arms = RACES[race]
    folder = out / f"{arm}-{seed}"
    if status(folder) not in ("done", "stopped"):
        shutil.rmtree(folder, ignore_errors=True)
        said = [f"train.seed={seed}", f"run.dir={out}", f"run.name={folder.name}", *arms[arm].sets]
        words = [sys.executable, "-m", "grpo_cli", "train", recipe, "--display", "plain"]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "verifiers")]),
            "GRPO_CACHE": str(out / "cache" / folder.name),  # each warms up for itself
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
            **arms[arm].env,
        }
        command = words + [part for one in said for part in ("--set", one)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            return {"arm": arm, "seed": seed, "failed": done.stderr.strip().splitlines()[-1:]}
    return {"arm": arm, "seed": seed, **outcome(folder)}


def status(folder: Path) -> str | None:
    """How a run ended, None where there is none."""
    file = folder / "run.json"
    return json.loads(file.read_text()).get("status") if file.is_file() else None


def outcome(folder: Path) -> dict[str, Any]:
    """Scores before and after, tokens, peak memory, and CPU seconds by phase."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    scores = [line for line in lines if "eval/pass@1" in line]
    steps = [line for line in lines if "reward/total/mean" in line]
    phases = json.loads((folder / "run.json").read_text())["phases"]
    variance = [line["critic/explained_variance"] for line in steps if line.get("critic/explained_variance")]
    return {
        "before": scores[0]["eval/pass@1"],
        "after": scores[-1]["eval/pass@1"],
        "greedy": scores[-1].get("eval/greedy"),
        "curve": [(line["step"], line["eval/pass@1"]) for line in scores],
        "tokens": sum(line["tokens/drawn"] for line in steps),
        "critic_mib": max((line.get("critic/mib", 0.0) for line in steps), default=0.0),
        "explained": variance[-1] if variance else None,
        "cpu": {name: said["cpu_s"] for name, said in phases.items()},
    }


def middle(values: list[float]) -> str:
    """`.912 ±.041`, the half-width by t over seeds; the value alone where there is one."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    from scipy.stats import t

    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.3f} ±{half:.3f}"


def table(found: list[dict[str, Any]], arms: list[str]) -> str:
    """A line for each run, then one for each arm."""
    out = [
        f"{'arm':12}{'seed':>5}{'before':>8}{'after':>8}{'greedy':>8}{'tokens':>9}  CPU seconds: "
        + " ".join(PHASES)
    ]
    for one in sorted(found, key=lambda r: (arms.index(r["arm"]), r["seed"])):
        if "failed" in one:
            out.append(f"{one['arm']:12}{one['seed']:5}  failed: {one['failed']}")
            continue
        cpu = " ".join(f"{one['cpu'].get(name, 0.0):7.1f}" for name in PHASES)
        greedy = "—" if one["greedy"] is None else f"{one['greedy']:.3f}"
        out.append(
            f"{one['arm']:12}{one['seed']:5}{one['before']:8.3f}{one['after']:8.3f}{greedy:>8}{one['tokens']:9.0f}  {cpu}"
        )
    for arm in arms:
        runs = [one for one in found if one["arm"] == arm and "failed" not in one]
        if not runs:
            continue
        warm = max(one["cpu"].get("warmup", 0.0) for one in runs)
        curve = "  ".join(
            f"{step}: {middle([dict(one['curve'])[step] for one in runs if step in dict(one['curve'])])}"
            for step, _ in runs[0]["curve"]
        )
        held = (
            f"critic {max(one['critic_mib'] for one in runs):.1f} MiB  "
            if any(r["critic_mib"] for r in runs)
            else ""
        )
        spent = middle([sum(one["cpu"].get(n, 0.0) for n in PHASES if n != "warmup") for one in runs])
        out.append(
            f"{arm}, n {len(runs)}: most of a warm-up {warm:.1f} CPU-s, else {spent} CPU-s  {held}pass@1 {curve}"
        )
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("race", choices=list(RACES))
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--arms", nargs="+", help="some of the arms")
    parser.add_argument(
        "-j", "--jobs", type=int, default=1, help="runs at the same time, of two threads each"
    )
    asked = parser.parse_args()
    arms = [name for name in RACES[asked.race][1] if not asked.arms or name in asked.arms]
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(asked.jobs) as pool:
        wanted = product(range(asked.seeds), arms)
        found = list(pool.map(lambda one: run(asked.race, one[1], one[0], out), wanted))
    (out / "results.json").write_text(json.dumps(found, indent=1))
    print(table(found, arms))
    return 1 if any("failed" in one for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
