"""What PPO's critic takes beside a GRPO step: bytes at rest and at the peak, seconds by phase, each side in a process of its own.

    PYTHONPATH=.:verifiers python bench/bench_critic.py [--shape quickstart|smollm2-135m] [--steps 4]

On CUDA the default is the shape of SmolLM2-135M and 256 completions of 256 tokens a step; on a CPU the quickstart's and 40.
Weights are random, and the reward is a pattern that about half of random samples match. GRPO draws 32 x 8, PPO 256 x 1; both
make as many updates a step as `mini_batches` says (`grpo-4` and PPO four). `rest` is what is allocated as a step begins, in
MiB: weights, optimizers, the critic's too. `peak` is the most of a step. Medians over the steps after the warm-up ones;
on a CPU the peak is that of the process and nothing is known at rest. One JSON line a side.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from step_sides import ROOT, own_recipe, side_command, side_environment, time_recipe, write_model

LORA = {"lora": {"r": 16, "alpha": 32}}
PPO: dict[str, Any] = {"algorithm": "ppo", "critic": {"warmup_steps": 0, "lr": 1e-5}}
SIDES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({}, {"algorithm": "grpo", "kl": {"beta": 0.0}}),
    "grpo-4": ({}, {"algorithm": "grpo", "kl": {"beta": 0.0}, "mini_batches": 4}),
    "ppo": ({}, PPO),
    "ppo-share": ({}, {**PPO, "critic": {**PPO["critic"], "share": True}}),
    "grpo-4-lora": (LORA, {"algorithm": "grpo", "kl": {"beta": 0.0}, "mini_batches": 4}),
    "ppo-lora": (LORA, PPO),
}
"""Keys of `model` and of `train`."""
TIMES = ("time/step", "time/generate", "time/update", "time/critic")


class Memory:
    """MiB allocated as steps begin, and the most of each."""

    def __init__(self) -> None:
        self.rest: list[float] = []
        self.peak: list[float] = []

    def callback(self) -> Any:
        """The trainer callback that looks."""
        import torch
        from transformers import TrainerCallback

        memory, seen = self, [-1]

        class Looks(TrainerCallback):  # type: ignore[misc]
            def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if not torch.cuda.is_available() or state.global_step == seen[0]:
                    return
                seen[0] = state.global_step
                memory.peak.append(torch.cuda.max_memory_allocated() / 2**20)
                memory.rest.append(torch.cuda.memory_allocated() / 2**20)
                torch.cuda.reset_peak_memory_stats()

        return Looks()


def run(name: str, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """`grpo train` of one side; what it took."""
    model, train = SIDES[name]
    group = 1 if train["algorithm"] == "ppo" else 8
    memory = Memory()
    shared = settings | {"prompts": settings["completions"] // group, "group": group}
    recipe = own_recipe(folder, shared, settings["warm"] + settings["steps"], dtype=settings["dtype"], **model)
    recipe["train"] |= train
    recipe["run"] |= {"name": name, "report": False}
    recipe["stop"] = {"on": []}
    time_recipe(recipe, folder, memory.callback)
    lines = [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").open()]
    steps = [line for line in lines if "reward/total/mean" in line][settings["warm"] :]
    seconds = {key: statistics.median(line.get(key) or 0.0 for line in steps) for key in TIMES}
    kept = slice(settings["warm"], None)
    return {
        "side": name,
        "n": len(steps),
        **{key: round(value, 4) for key, value in seconds.items()},
        "step_least_most": [min(s["time/step"] for s in steps), max(s["time/step"] for s in steps)],
        "rest_mib": statistics.median(memory.rest[kept]) if memory.rest[kept] else None,
        "peak_mib": max(memory.peak[kept]) if memory.peak[kept] else None,
        "process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "critic_mib": steps[-1].get("critic/mib"),
    }


def apart(name: str, folder: Path, settings: dict[str, Any], limit: float) -> None:
    """One side in a process of its own; prints its line, or why there is none."""
    command, env = side_command(__file__, name, folder, settings), side_environment(folder)
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=limit, cwd=ROOT)
    except subprocess.TimeoutExpired:
        print(json.dumps({"side": name, "failed": f"not done in {limit:g} s"}), flush=True)
        return
    if done.returncode:
        print(json.dumps({"side": name, "failed": done.stderr[-600:]}), flush=True)
        return
    print(done.stdout.splitlines()[-1], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["quickstart", "smollm2-135m"])
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--completions", type=int, default=256)
    parser.add_argument("--new", type=int)
    parser.add_argument("--micro", type=int, default=64, help="completions a forward pass")
    parser.add_argument("--steps", type=int, default=4, help="timed steps")
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--limit", type=float, default=90.0, help="seconds a side")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps(run(args.side, args.folder, args.settings)))
        return
    import torch
    from bench_rollout import build_model

    on_cuda = torch.cuda.is_available()
    shape = args.shape or ("smollm2-135m" if on_cuda else "quickstart")
    settings = {
        "new": args.new or (256 if on_cuda else 40),
        **{key: getattr(args, key) for key in ("dtype", "completions", "micro", "steps", "warm")},
    }
    device = torch.cuda.get_device_name() if on_cuda else f"cpu, {torch.get_num_threads()} threads"
    print(json.dumps({"device": device, "torch": torch.__version__, "shape": shape, **settings}), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder, build_model(shape, "cpu", torch.float32), 4096, 64 if on_cuda else 14)
        for one in args.sides:
            apart(one, folder, settings, args.limit)


if __name__ == "__main__":
    main()
