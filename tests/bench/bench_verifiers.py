"""Cost of a verdict for each verifier, of the worker pool, and of `grpo verify`, in one run. Prints figures; no test.

    PYTHONPATH=.:verifiers python tests/bench/bench_verifiers.py [--lines 20000]

CPU microseconds a completion over the labelled cases of each kind that settle in this process; wall where processes
do the work. `over json` is the ratio to reading and writing the same lines as JSON, which any such tool must do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from grpo_verifiers import Sample, build
from grpo_verifiers.processes.pool import Pool, ProcessLimits

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases"
KINDS = ["exact", "set", "choice", "numeric", "json", "format", "equation", "instructions", "regex"]


def cost_us(kind: str) -> float:
    """CPU microseconds a completion, over the kind's cases that need no process."""
    lines = [json.loads(line) for line in (CASES / f"{kind}.jsonl").read_text().splitlines()]
    ready = []
    for case in lines:
        options = case.get("options", {})
        if case["outcome"] == "over_limit" or "json_schema" in options or "schema" in case["row"]:
            continue
        verifier = build(kind, **options)
        ready.append((verifier, Sample(case["completion"], verifier.compile(case["row"]))))
    began, n = time.process_time(), 0
    while time.process_time() - began < 0.5:
        for verifier, sample in ready:
            verifier.judge([sample])
        n += len(ready)
    return (time.process_time() - began) / n * 1e6


def pool_figures() -> dict[str, float]:
    """Start, cost an item, and time from a limit to the verdict, for a pool of one worker."""
    path = [str(ROOT / "tests/verifiers/processes")]
    began = time.perf_counter()
    pool = Pool("pool_tasks:make", workers=1, limits=ProcessLimits(cpu_s=0.2), path=path)
    pool.run(["warm"])
    start_ms = (time.perf_counter() - began) * 1e3
    began = time.perf_counter()
    pool.run(list(range(20_000)))
    item_us = (time.perf_counter() - began) / 20_000 * 1e6
    began = time.perf_counter()
    pool.run(["loop", "next"])
    kill_ms = (time.perf_counter() - began - 0.2) * 1e3
    pool.close()
    return {"start ms": start_ms, "item us": item_us, "kill and replace ms": kill_ms}


def verify_figures(lines: int) -> dict[str, float]:
    """Lines a second and CPU microseconds a line of `grpo verify --math` on GSM8K-like lines; start-up apart."""
    prose = "Let me think step by step. First we compute the total and then divide it. " * 4
    rows = [
        {
            "id": i // 8,
            "prompt": "How many?",
            "answer": str(i % 97),
            "completion": f"{prose}It is \\boxed{{{i % 89}}}.",
        }
        for i in range(lines)
    ]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'verifiers'}", "OMP_NUM_THREADS": "1"}
    out: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        file, few = Path(folder) / "all.jsonl", Path(folder) / "few.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        few.write_text("".join(json.dumps(row) + "\n" for row in rows[:8]))
        began = time.process_time()
        for line in file.read_text().splitlines():
            json.dumps(json.loads(line))
        json_us = (time.process_time() - began) / lines * 1e6
        command = [sys.executable, "-m", "grpo_cli", "verify", "--math", "--json"]
        began = time.perf_counter()
        subprocess.run([*command, str(few)], env=env, capture_output=True, check=True)
        out["start-up and eight lines s"] = time.perf_counter() - began
        for jobs in ("1", "2"):
            before = os.times()
            got = subprocess.run([*command, "-j", jobs, str(file)], env=env, capture_output=True, check=True)
            after = os.times()
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            found: dict[str, Any] = json.loads(got.stdout)
            out[f"{jobs} process: lines/s"] = found["lines_per_s"]
            out[f"{jobs} process: cpu us a line"] = cpu / lines * 1e6
        out["1 process: over json"] = out["1 process: cpu us a line"] / json_us
    return out


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=20_000)
    lines = parser.parse_args().lines
    for kind in KINDS:
        print(f"{kind:<14} {cost_us(kind):8.1f} us a completion")
    for name, value in {**pool_figures(), **verify_figures(lines)}.items():
        print(f"{name:<28} {value:10.2f}")


if __name__ == "__main__":
    main()
