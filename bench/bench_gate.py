"""Does a run collapse on what is paid beside the outcome, and does the outcome gate keep it from that?

    PYTHONPATH=.:verifiers python bench/bench_gate.py OUT --jobs 16 [--seeds 5] [--variants plain overlong parts resample]

The quickstart with 64 x 4 samples a step, of whose training rows 65 % have a gold that no answer reaches, as real rows have:
most groups are all wrong. Each run is a `grpo train` of its own with one thread, in OUT/VARIANT-ARM-SEED; what came of it
stands in OUT/results.jsonl as it ends. Call again, and what stands there is not run again. Nothing but this checkout is read.

Variants are what is paid beside the outcome: `plain` a verifier of weight .3 for short answers, 1 - bytes/40; `overlong` the
penalty of `train.overlong: 0.8`; `parts` the same verifier with `reward_combine: normalise_then_sum`; `resample` the same with
`dead_groups: resample`. Arms: `none` pays nothing beside the outcome, `reward` is `alive_by: reward`, `gate` the default.

Prints one line of JSON a run, and a table at the end: held-out sampled pass@1 (256 x 4) before and after, paired differences to
`none` with 95 % t intervals, and the step at which finding W62 was said.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "verifiers")]

ROWS, OUT_OF_REACH = 12_000, 0.65
SHORT = '''
"""Short answers pay more, right or wrong."""


def short(completion, answer):
    return max(0.0, 1 - len(completion.encode()) / 40)
'''
VERIFIER = {"short": {"kind": "python", "function": "short.py:short", "weight": 0.3}}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"verify": VERIFIER},
    "overlong": {"train": {"overlong": 0.8}},
    "parts": {"verify": VERIFIER, "train": {"reward_combine": "normalise_then_sum"}},
    "resample": {"verify": VERIFIER, "train": {"dead_groups": "resample"}},
}
ARMS = ("none", "reward", "gate")


def write_world(folder: Path, seed: int) -> None:
    """Training rows of which most cannot be answered as their gold asks; the demonstrations stay right."""
    from grpo_cli.data.tasks.addition3 import rows

    rng, lines = random.Random(f"out of reach/{seed}"), []
    for row in rows("train", ROWS):
        if rng.random() < OUT_OF_REACH:
            row["answer"] = str(1_000_000 + int(row["answer"]))
        lines.append(json.dumps(row) + "\n")
    (folder / "rows.jsonl").write_text("".join(lines))
    (folder / "short.py").write_text(SHORT)


def recipe_of(variant: str, arm: str, seed: int, steps: int, weight: float) -> dict[str, Any]:
    """The quickstart with the world's rows, and what the arm pays beside the outcome."""
    found = VARIANTS[variant]
    train: dict[str, Any] = {"steps": steps, "seed": seed}
    out: dict[str, Any] = {
        "grpo": 1,
        "extends": "quickstart",
        "data": {"train": "rows.jsonl"},
        "sample": {"prompts": 64, "group": 4},
        "train": train,
        "eval": {"every": None, "between": None, "greedy": False, "samples": 4, "k": [1]},
        "monitor": {"kl": "off"},
        "run": {"dir": "runs", "name": "run", "report": False, "threads": 1},
    }
    if variant == "resample":
        train["dead_groups"] = "resample"
    if arm == "none":
        return out
    train |= found.get("train", {}) | ({"alive_by": "reward"} if arm == "reward" else {})
    if "verify" in found:
        out["verify"] = {"math": {"primary": True}, "short": VERIFIER["short"] | {"weight": weight}}
    return out


def run(out: Path, variant: str, arm: str, seed: int, steps: int, weight: float) -> dict[str, Any]:
    """One run, and what came of it."""
    folder = out / f"{variant}-{arm}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_world(folder, seed)
    (folder / "recipe.yaml").write_text(json.dumps(recipe_of(variant, arm, seed, steps, weight)))
    env = os.environ | {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'verifiers'}",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        # one a run: of runs that begin together each would make the warm-up anyway
        "GRPO_CACHE": str(folder / "cache"),
    }
    began = time.perf_counter()
    told = subprocess.run(
        [sys.executable, "-m", "grpo_cli", "train", "recipe.yaml", "--json", "--display", "none"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode:
        raise RuntimeError(f"{folder.name}: exit code {told.returncode}: {told.stderr[-2000:]}")
    return summary(folder / "runs" / "run") | {
        "variant": variant,
        "arm": arm,
        "seed": seed,
        "weight": weight,
        "seconds": round(time.perf_counter() - began, 1),
    }


def summary(folder: Path) -> dict[str, Any]:
    """Held-out scores, what the steps measured, and the findings with the step at which each was first said."""
    from grpo_cli.findings.run_data import collect
    from grpo_cli.run.folder import RunFolder

    read = collect(RunFolder.open(folder))
    scores = [line["eval/pass@1"] for line in read.evaluations]
    said: dict[str, int] = {}
    for finding in read.findings:
        said.setdefault(finding.code, finding.step)
    return {
        "before": scores[0],
        "after": scores[-1],
        "w62": said.get("W62"),
        "findings": said,
        "steps": len(read.steps),
        "shape/alone": [_rounded(line.get("shape/alone")) for line in read.steps],
        "group/inverted": [_rounded(line.get("group/inverted")) for line in read.steps],
        "all_wrong": [line["group/all_wrong"] / line["group/count"] for line in read.steps],
        "right": [_rounded(line.get("right")) for line in read.steps],
        "length": [_rounded(line.get("length/mean")) for line in read.steps],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def table(found: list[dict[str, Any]]) -> list[str]:
    """Means over seeds, and paired differences to `none`."""
    lines = [
        "| variant | arm | n | before | after | least after | less `none`, paired | W62 at step |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for variant in VARIANTS:
        none = {one["seed"]: one["after"] for one in found if (one["variant"], one["arm"]) == (_bare(variant), "none")}
        for arm in ARMS:
            own = sorted(
                (one for one in found if (one["variant"], one["arm"]) == (variant, arm)), key=lambda one: one["seed"]
            )
            if not own:
                continue
            after = [one["after"] for one in own]
            gaps = [one["after"] - none[one["seed"]] for one in own if one["seed"] in none]
            steps = ", ".join("—" if one["w62"] is None else str(one["w62"]) for one in own)
            cells = (variant, arm, len(own), f"{statistics.fmean(one['before'] for one in own):.3f}", f"{statistics.fmean(after):.3f}", f"{min(after):.3f}", "" if arm == "none" else interval(gaps), steps)  # fmt: skip
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _bare(variant: str) -> str:
    """The variant whose `none` this one is compared with: without anything beside the outcome only `resample` differs."""
    return variant if variant == "resample" else "plain"


def interval(gaps: list[float]) -> str:
    """Mean and 95 % t interval."""
    if len(gaps) < 2:
        return f"{gaps[0]:+.3f}" if gaps else ""
    from scipy.stats import t

    mean = statistics.fmean(gaps)
    half = float(t.ppf(0.975, len(gaps) - 1)) * statistics.stdev(gaps) / len(gaps) ** 0.5
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


def main() -> None:
    """Run what is not there yet, several at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each on one thread")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--weight", type=float, default=0.3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "results.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(one["variant"], one["arm"], one["seed"]) for one in found}
    asked = [
        (variant, arm, seed)
        for seed in range(options.seeds)
        for variant in options.variants
        for arm in options.arms
        if arm != "none" or variant == _bare(variant)
    ]
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        left = [pool.submit(run, options.out, *one, options.steps, options.weight) for one in asked if one not in done]
        for future in as_completed(left):
            try:
                one = future.result()
            except RuntimeError as err:
                failed += 1
                print(err, file=sys.stderr, flush=True)
                continue
            found.append(one)
            print(json.dumps(one), flush=True)
            with file.open("a") as results:
                results.write(json.dumps(one) + "\n")
    print("\n".join(table(found)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
