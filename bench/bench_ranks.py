"""One card beside several on the same host, in one call: seconds of a step and its parts, peak memory, losses.

    PYTHONPATH=.:verifiers python bench/bench_ranks.py [--cases 1.5b 135m 7b-lora 7b-full] [--steps 5] [--ranks 2]

Random weights in bfloat16, prompts of about 64 tokens, 256 tokens a sample, every step whole: generation, verdicts, update.
Each side is `grpo train` in processes of its own, ended once its steps are done, so that no checkpoint is written. Printed after
each side: median (least and most) of n steps after the first two, of rank 0; the peak of rank 0; whether all losses and gradients
were finite; after each case the ratio to one card. One JSON line a side goes to $OUT/bench_ranks.jsonl, or where --out says.
Without a GPU the ranks are processes of the CPU: `--cases tiny tiny-zero1` tries the whole.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_update import SHAPES, build
from step_sides import own_recipe, side_environment, time_recipe, write_model

CASES: dict[str, dict[str, Any]] = {
    "1.5b": {"shape": "qwen2.5-1.5b", "prompts": 64, "micro": 32, "sides": ("ddp",)},
    "135m": {"shape": "smollm2-135m", "prompts": 64, "micro": 64, "sides": ("ddp",)},
    "7b-lora": {"shape": "qwen2.5-7b-lora", "prompts": 32, "micro": 16, "sides": ("ddp",)},
    "7b-full": {"shape": "qwen2.5-7b-lora", "prompts": 16, "micro": 8, "sides": ("zero1", "fsdp2"), "whole": True},
    "tiny": {"shape": "tiny", "prompts": 4, "micro": 8, "sides": ("ddp",), "new": 16},
    "tiny-zero1": {"shape": "tiny", "prompts": 4, "micro": 8, "sides": ("zero1", "fsdp2"), "new": 16},
}
"""Prompts of 8 samples, completions a forward pass, what two cards run with."""
WARM = 2
GROUP = 8


def rank(folder: Path, settings: dict[str, Any]) -> None:
    """One rank; the first prints what its steps measured."""
    import torch
    from transformers import TrainerCallback

    case, steps = settings["case"], settings["steps"] + WARM
    lora = None if case.get("whole") else SHAPES[case["shape"]].get("lora")
    said = own_recipe(
        folder,
        {"group": GROUP, "new": 256, **case},
        steps + 2,
        dtype="bfloat16" if torch.cuda.is_available() else "float32",
        **({"lora": {"r": lora, "alpha": 2 * lora}} if lora else {}),
    )
    said["launch"] = {"strategy": settings["side"]} if settings["side"] != "one" else {}
    if settings["side"] != "one":
        said["launch"]["gpus" if torch.cuda.is_available() else "cpu_ranks"] = settings["ranks"]
    said["run"]["name"] = settings["side"]
    notes: list[str] = []

    class End(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step <= steps:
                return
            if os.environ.get("RANK", "0") == "0":
                text = (folder / "runs" / settings["side"] / "metrics.jsonl").read_text()
                rows = [row for row in map(json.loads, text.splitlines()) if "loss" in row][:steps]
                print(json.dumps({"rows": rows, "notes": notes}), flush=True)
            sys.stdout.flush()
            os._exit(0)  # before a checkpoint is written

    time_recipe(said, folder, End, notes.append)


def run(case: str, side: str, folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """What a side's steps measured."""
    settings = {"case": CASES[case], "side": side, "steps": asked.steps, "ranks": asked.ranks}
    own = [__file__, "--folder", str(folder), "--settings", json.dumps(settings)]
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={asked.ranks}"]
    command = [sys.executable, *(several if side != "one" else []), *own]
    env = side_environment(folder) | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "8")}
    if side == "one":
        env["CUDA_VISIBLE_DEVICES"] = env.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    shutil.rmtree(folder / "runs", ignore_errors=True)
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=asked.limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {asked.limit:g} s"}
    line = next((line for line in done.stdout.splitlines() if line.startswith('{"rows"')), None)
    if line is None:
        return {"failed": (done.stdout + done.stderr)[-2000:]}
    found: dict[str, Any] = json.loads(line)
    timed = found["rows"][WARM:]
    parts = {
        key: [row[f"time/{key}"] for row in timed if f"time/{key}" in row] for key in ("step", "generate", "update")
    }
    return {
        **{key: (statistics.median(s), min(s), max(s)) if s else (math.nan,) * 3 for key, s in parts.items()},
        "n": len(timed),
        "peak_gib": max((row.get("memory/peak_gib", math.nan) for row in found["rows"]), default=math.nan),
        "losses": [row["loss"] for row in found["rows"]],
        "finite": all(math.isfinite(row[key]) for row in found["rows"] for key in ("loss", "grad_norm") if key in row)
        and not any(row.get("skipped_steps") for row in found["rows"]),
        "notes": found["notes"],
    }


def main() -> None:
    """The cases, each on one card and on several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["1.5b", "135m", "7b-lora", "7b-full"])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of a side")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "bench_ranks.jsonl")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.settings:
        rank(asked.folder, json.loads(asked.settings))
        return
    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{card}, {asked.ranks} ranks, torch {torch.__version__}", flush=True)
    shape = ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in sorted(asked.cases, key=lambda case: CASES[case]["shape"]):
            if CASES[case]["shape"] != shape:
                shape = CASES[case]["shape"]
                shutil.rmtree(folder / "model", ignore_errors=True)
                most = max(one["prompts"] for one in CASES.values() if one["shape"] == shape)
                model = build(shape, autocast=not torch.cuda.is_available())
                write_model(folder, model, 4 * most, 64)
                del model
                torch.cuda.empty_cache()
            alone = math.nan
            for side in ("one", *CASES[case]["sides"]):
                found = run(case, side, folder, asked)
                with asked.out.open("a") as file:
                    file.write(json.dumps({"case": case, "side": side, "card": card, **found}) + "\n")
                if "failed" in found:
                    print(f"{case:10} {side:6} FAILED: {found['failed']}", flush=True)
                    continue
                step, low, high = found["step"]
                alone = step if side == "one" else alone
                print(
                    f"{case:10} {side:6} step {step:.3g} ({low:.3g}–{high:.3g}) = generate {found['generate'][0]:.3g}"
                    f" + update {found['update'][0]:.3g} s, n {found['n']}, peak {found['peak_gib']:.1f} GiB,"
                    f" {'finite' if found['finite'] else 'NOT FINITE'}, {alone / step:.2f} x of one",
                    flush=True,
                )
                for note in found["notes"]:
                    print(f"{'':18}{note}", flush=True)


if __name__ == "__main__":
    main()
