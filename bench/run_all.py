"""`make bench`: every bench of this folder with small sizes, one after the other; what each prints is printed.

    PYTHONPATH=.:verifiers python bench/run_all.py [--seeds 5] [--only step target] [--list]

A bench that fails or finds its data missing is named at the end and makes the exit code 1; the others still run. Times on
a busy machine are noise: read the ratios, which come from one run each, and CPU seconds. CPU benches have one thread.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from grpo_cli.policy.threads import usable_cores

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Bench:
    """One script with its arguments; `on_cuda` ones run where there is a CUDA device only."""

    name: str
    title: str
    script: str
    args: tuple[str, ...] = ()
    on_cuda: bool = False


def benches(seeds: int) -> list[Bench]:
    """All of them, quick ones first."""
    llm = ("--shape", "smollm2-135m", "--prompt-tokens", "128", "--prompts", "4", "--new", "24", "--repeat", "1")
    cpu = ("--device", "cpu")
    return [
        Bench("math", "maths verifier against math-verify", "bench_math.py", ("--rows", "60")),
        Bench("code", "code verifier and sandbox", "bench_code.py", ("--problems", "20")),
        Bench("seeing", "statistics, records and display of a step", "bench_seeing.py"),
        Bench("coverage", "coverage of the intervals", "bench_coverage.py", ("--reps", "500")),
        Bench(
            "findings",
            "forecasts and false findings",
            "bench_findings.py",
            ("--reps", "20", "--runs", "40", "--shaped", "10"),
        ),
        Bench(
            "alarm", "gap alarm on a growing hack, and its silence", "bench_alarm.py", ("--seeds", "1", "--runs", "10")
        ),
        Bench("rollout", "engine / TRL default, quickstart model, CPU", "bench_rollout.py", cpu),
        Bench(
            "rollout-short",
            "the same, samples that end by themselves",
            "bench_rollout.py",
            (*cpu, "--end-share", "0.03"),
        ),
        Bench(
            "rollout-table",
            "the engine alone, quickstart model, 64 to 1024 samples and tokens, CPU",
            "bench_rollout.py",
            (*cpu, "--engine-only", "--table"),
        ),
        Bench("rollout-llm", "engine / TRL default, SmolLM2-135M shape, CPU", "bench_rollout.py", (*cpu, *llm)),
        Bench("step", "whole step / plain TRL, quickstart shape, CPU", "bench_step.py", (*cpu, "--steps", "4")),
        Bench(
            "rollout-gpu",
            "engine / TRL default, SmolLM2-135M shape, 32 x 8 x 256, 64 to 1024 samples and tokens, CUDA",
            "bench_rollout.py",
            ("--shape", "smollm2-135m", "--prompt-tokens", "64", "--new", "256", "--repeat", "2", "--table"),
            on_cuda=True,
        ),
        Bench(
            "step-gpu",
            "whole step / plain TRL, SmolLM2-135M shape, 32 x 8 x 256, bf16, CUDA",
            "bench_step.py",
            ("--dtype", "bfloat16", "--plain-steps", "2"),
            on_cuda=True,
        ),
        Bench(
            "target",
            "time to target of the quickstart / plain TRL, CPU",
            "bench_target.py",
            ("--seeds", str(seeds), "--jobs", str(min(seeds, usable_cores()))),
        ),
    ]


def has_cuda() -> bool:
    """Asked in a process of its own, so that this one holds no device."""
    ask = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", ask], check=False).returncode == 0


def main() -> None:
    """Runs the benches named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="of the race to the target")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these benches")
    parser.add_argument("--list", action="store_true", help="name the benches and stop")
    args = parser.parse_args()
    every = benches(args.seeds)
    if args.list:
        print("\n".join(f"{bench.name:15} {bench.title}" for bench in every))
        return
    unknown = set(args.only or ()) - {bench.name for bench in every}
    if unknown:
        parser.error(f"no bench `{sorted(unknown)[0]}`; --list names them")
    chosen = [bench for bench in every if args.only is None or bench.name in args.only]
    cuda = any(bench.on_cuda for bench in chosen) and has_cuda()
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "verifiers"), os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_OFFLINE": "1",
    }
    failed, start = [], time.perf_counter()
    for number, bench in enumerate(chosen, 1):
        if bench.on_cuda and not cuda:
            print(f"\n== {bench.name}: not run, no CUDA device", flush=True)
            continue
        print(f"\n== {number}/{len(chosen)} {bench.name}: {bench.title}", flush=True)
        began = time.perf_counter()
        # threads that wait for each other spin, which would count as CPU seconds
        threads = {} if bench.on_cuda else {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, str(HERE / bench.script), *bench.args], env=env | threads, cwd=ROOT, check=False
        )
        now = time.perf_counter()
        print(f"-- {bench.name}: {now - began:.0f} s, {(now - start) / 60:.0f} min so far", flush=True)
        if done.returncode:
            failed.append(bench.name)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
