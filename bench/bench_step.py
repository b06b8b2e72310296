"""A whole GRPO step, `grpo train` against plain `trl` with the same settings, in processes of their own.

    PYTHONPATH=.:verifiers python bench/bench_step.py [--shape quickstart|smollm2-135m] [--steps 6]

On CUDA the default is the shape of SmolLM2-135M, 32 prompts x 8 samples x 256 tokens; on a CPU the quickstart's. Weights
are random, so samples run to their last token: no gain from samples that end early, and the reward (a pattern about
half of them match) leaves next to no group without signal, so none from dropping those either. The plain side is a
`GRPOTrainer` with its own generation and the same batch split, TRL's gradient checkpointing off as ours is.
Seconds are wall seconds on CUDA and CPU seconds elsewhere, means over the steps after the warm-up ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from step_sides import plain_trainer, run_own, run_side, write_model

ROOT = Path(__file__).resolve().parents[1]


def spent(device: str) -> float:
    """Wall seconds on CUDA (once it is idle), CPU seconds elsewhere."""
    if device != "cuda":
        return time.process_time()
    import torch

    torch.cuda.synchronize()
    return time.perf_counter()


class Parts:
    """Seconds of each step and of the generation in it; the last step, with what ends a run, is left out."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.device, self.warm = settings["device"], settings["warm"]
        self.began, self.generated = 0.0, 0.0
        self.steps: list[dict[str, float]] = []

    def timed_generation(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, counted."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            began = spent(self.device)
            found = call(*args, **kwargs)
            self.generated += spent(self.device) - began
            return found

        return counted

    def callback(self) -> Any:
        """The trainer callback that marks steps."""
        from transformers import TrainerCallback

        parts = self

        class Marks(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                now = spent(parts.device)
                if parts.began:
                    parts.close(now)
                parts.began, parts.generated = now, 0.0

        return Marks()

    def close(self, now: float) -> None:
        """The step that began last is over."""
        self.steps.append({"step": now - self.began, "generate": self.generated})

    def found(self) -> dict[str, Any]:
        """Means over the timed steps."""
        import torch

        timed = self.steps[self.warm :]
        mean = {key: statistics.fmean(step[key] for step in timed) for key in ("step", "generate")}
        return {
            **mean,
            "update": mean["step"] - mean["generate"],
            "first_step": self.steps[0]["step"],
            "timed_steps": len(timed),
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if self.device == "cuda" else None,
        }

    def report(self) -> None:
        """One JSON line on stdout."""
        print(json.dumps(self.found()))


def own(folder: Path, settings: dict[str, Any]) -> None:
    """`grpo train` on a recipe of these settings."""
    from grpo_cli.rollout.graph.engine import GraphEngine

    parts = Parts(settings)
    GraphEngine.generate = parts.timed_generation(GraphEngine.generate)  # type: ignore[method-assign]
    steps = settings["steps"] + settings["warm"] + 1
    run_own(folder, settings, steps, parts.callback, dtype=settings["dtype"])
    parts.report()


def plain(folder: Path, settings: dict[str, Any]) -> None:
    """TRL's own trainer, its generation, every row through the loss."""
    import torch

    dtype = torch.bfloat16 if settings["dtype"] == "bfloat16" else torch.float32
    parts = Parts(settings)
    steps = settings["steps"] + settings["warm"] + 1
    trainer = plain_trainer(
        folder, settings, steps, dtype, parts.callback(),
        bf16=settings["device"] == "cuda", gradient_checkpointing=False,
    )  # fmt: skip
    trainer._generate_single_turn = parts.timed_generation(trainer._generate_single_turn)
    trainer.train()
    parts.report()


def main() -> None:
    """Prints one JSON object: both sides and the ratios plain / own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["quickstart", "smollm2-135m"])
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int)
    parser.add_argument("--new", type=int)
    parser.add_argument("--micro", type=int, help="completions a forward pass; all on a CPU, 64 on CUDA")
    parser.add_argument("--steps", type=int, default=6, help="timed steps of our side")
    parser.add_argument("--plain-steps", type=int, help="timed steps of the plain side (default: as many)")
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--only", choices=["own", "plain"], help="one side, no ratio")
    parser.add_argument("--side", choices=["own", "plain"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        {"own": own, "plain": plain}[args.side](args.folder, args.settings)
        return
    import torch
    from bench_rollout import build_model

    on_cuda = torch.cuda.is_available() if args.device is None else args.device == "cuda"
    settings = {
        "device": "cuda" if on_cuda else "cpu",
        "shape": args.shape or ("smollm2-135m" if on_cuda else "quickstart"),
        "new": args.new or (256 if on_cuda else 40),
        "micro": args.micro or (64 if on_cuda else None),
        **{key: getattr(args, key) for key in ("prompts", "group", "dtype", "steps", "warm")},
    }
    prompt_tokens = args.prompt_tokens or (64 if on_cuda else 14)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = build_model(settings["shape"], "cpu", torch.float32)
        write_model(folder, model, args.prompts * 40, prompt_tokens)
        fewer = settings | {"steps": args.plain_steps or args.steps, "warm": min(args.warm, 1)}
        found = {
            name: run_side(__file__, name, folder, settings if name == "own" else fewer)
            for name in ("own", "plain")
            if args.only in (None, name)
        }
    keys = ("step", "generate", "update") if args.only is None else ()
    ratios = {key: found["plain"][key] / found["own"][key] for key in keys}
    device = torch.cuda.get_device_name() if on_cuda else f"cpu, {torch.get_num_threads()} threads"
    print(
        json.dumps(
            {"device": device, "torch": torch.__version__, "settings": settings, **found, "ratio": ratios}, indent=1
        )
    )


if __name__ == "__main__":
    main()
