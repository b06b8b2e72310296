"""What `grpo check --gpu` says of a run beside what the run takes: memory and seconds of a step, on this machine's card.

    PYTHONPATH=.:verifiers python bench/bench_fit.py [--shapes smollm2-135m qwen2.5-1.5b qwen2.5-7b-lora] [--steps 5]

Random weights, 32 prompts of about 64 tokens x 8 samples x 256 tokens. The engine's samples are cut to random lengths from a
quarter up, as samples that end are, so that graphs of several shapes are captured, before and after the optimizer has its state.
A process of its own a shape. Printed: peak (torch's count of what it gave out) and reserved GiB, seconds of generation and of the
rest (median of n after the warm ones), each with what was said before. One JSON line a shape goes to $OUT/bench_fit.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench_update import SHAPES, build
from step_sides import own_recipe, run_own, write_model

ROOT = Path(__file__).resolve().parents[1]
LEAST = 4
"""Samples are cut at a length from a fourth of the longest up."""


def model_keys(shape: str, dtype: str) -> dict[str, Any]:
    """The recipe's section `model` beside its path."""
    rank = SHAPES[shape].get("lora")
    return {"dtype": dtype} | ({"lora": {"r": rank, "alpha": 2 * rank}} if rank else {})


def cut(rng: random.Random, length: int) -> int:
    """Tokens that stay of a sample."""
    return rng.randint(max(1, length // LEAST), length)


def train(folder: Path, settings: dict[str, Any]) -> None:
    """`grpo train`, left when the last timed step is over; one JSON line of what it took."""
    import torch
    from transformers import TrainerCallback

    from grpo_cli.rollout.graph.engine import GraphEngine

    rng, whole = random.Random(0), GraphEngine.generate
    notes: list[str] = []

    def shortened(one: Any) -> Any:
        kept = cut(rng, len(one.token_ids))
        return replace(one, token_ids=one.token_ids[:kept], logps=one.logps[:kept])

    def generate(self: Any, *args: Any, **named: Any) -> Any:
        groups = whole(self, *args, **named)
        return [[shortened(one) for one in group] for group in groups]

    GraphEngine.generate = generate  # type: ignore[method-assign]
    steps = settings["warm"] + settings["steps"]

    class Leaves(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.begun = 0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.begun += 1
            if self.begun > steps:
                on_cuda = torch.cuda.is_available()
                peak = torch.cuda.max_memory_allocated() if on_cuda else None
                reserved = torch.cuda.max_memory_reserved() if on_cuda else None
                found = {"peak": peak, "reserved": reserved, "notes": notes}
                print("RESULT " + json.dumps(found), flush=True)
                os._exit(0)

    keys = model_keys(settings["shape"], settings["dtype"])
    run_own(folder, settings, steps + 2, Leaves, notes.append, **keys)


def said_before(folder: Path, settings: dict[str, Any], card: str) -> dict[str, float]:
    """What the sums say of it: bytes and seconds."""
    from grpo_cli.policy.loading.files import model_files
    from grpo_cli.policy.loading.sizes import read_sizes
    from grpo_cli.recipe.arithmetic import plan
    from grpo_cli.recipe.sections.recipe import Recipe
    from grpo_cli.sizing.cards import read_cards
    from grpo_cli.sizing.fit import KEPT, CardQuestion, fit, lengths_of, pass_bytes

    keys = model_keys(settings["shape"], settings["dtype"])
    recipe = Recipe.model_validate(own_recipe(folder, settings, 10, **keys))
    sizes = read_sizes(recipe.model, model_files(recipe.model))
    assert sizes is not None
    prompts = [settings["prompt_tokens"] - 8 + row % 16 for row in range(64)]
    new = settings["new"]
    rng = random.Random(0)
    mean = statistics.fmean(cut(rng, new) for _ in range(10_000))
    batches, ask = plan(recipe, 10 * settings["prompts"]), CardQuestion(read_cards(card))
    drawn = fit(
        recipe, sizes, batches, lengths_of(prompts, new), ask
    )  # the engine draws all, the update learns from less
    kept = fit(recipe, sizes, batches, lengths_of(prompts, new, mean, new), ask)
    # no micro-batch is of full-length samples only: its pass at the lengths that it has
    short = recipe.model_copy(update={"sample": recipe.sample.model_copy(update={"max_tokens": round(mean)})})
    micro = settings["micro"]
    own = sum(pass_bytes(replace(kept.work, recipe=short), micro).values())
    peak = kept.memory.peak - sum(pass_bytes(kept.work, micro).values()) + own
    return {
        "peak": peak,
        "wanted": peak + KEPT * own,
        "generate": drawn.duration.generate,
        "rest": kept.duration.update + kept.duration.other,
    }


def measured(folder: Path, settings: dict[str, Any], limit: float) -> dict[str, Any]:
    """The run in a process of its own, and what its records say of its steps."""
    command = [sys.executable, __file__, "--folder", str(folder), "--settings", json.dumps(settings)]
    env = os.environ | {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"ended after {limit:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        return {"failed": f"exit {done.returncode}", "tail": (done.stdout + done.stderr)[-3000:]}
    found: dict[str, Any] = json.loads(lines[-1][7:])
    (records,) = (folder / "runs").glob("*/metrics.jsonl")
    steps = [json.loads(line) for line in records.read_text().splitlines()]
    steps = [step for step in steps if "time/generate" in step][settings["warm"] :]
    return found | {
        "n": len(steps),
        "generate": [step["time/generate"] for step in steps],
        "rest": [step["time/step"] - step["time/generate"] for step in steps],
    }


def row(shape: str, said: dict[str, float], found: dict[str, Any]) -> str:
    """One row of the table."""
    if "failed" in found:
        return f"| {shape} | failed: {found['failed']} |"
    gib = 2**30

    def beside(predicted: float, got: float | None, unit: float, form: str) -> str:
        return (
            f"{predicted / unit:{form}} / -"
            if not got
            else f"{predicted / unit:{form}} / {got / unit:{form}} ({predicted / got - 1:+.0%})"
        )

    generate, rest = statistics.median(found["generate"]), statistics.median(found["rest"])
    return " | ".join(
        [
            f"| {shape}",
            beside(said["peak"], found["peak"], gib, ".1f"),
            beside(said["wanted"], found["reserved"], gib, ".1f"),
            beside(said["generate"], generate, 1, ".3f"),
            beside(said["rest"], rest, 1, ".3f"),
            beside(said["generate"] + said["rest"], generate + rest, 1, ".3f"),
            f"{found['n']} |",
        ]
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=["smollm2-135m", "qwen2.5-1.5b", "qwen2.5-7b-lora"]
    )
    parser.add_argument("--dtype", default="bfloat16", help="`auto`: float32 weights under an autocast")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--limit", type=float, default=150, help="seconds for one shape")
    parser.add_argument("--card", help="whose numbers to say, where this machine has none")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "bench_fit.jsonl")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.settings:
        train(args.folder, args.settings)
        raise SystemExit("the run ended before its last step was timed")
    import torch

    on_cuda = torch.cuda.is_available()
    card = args.card or (torch.cuda.get_device_name() if on_cuda else "H100")
    print(f"said / measured, {card}, {args.prompts} x {args.group} x {args.new}, {args.dtype}")
    print("| shape | peak GiB | reserved GiB | generate s | rest s | step s | n |\n" + "|---" * 7 + "|", flush=True)
    for shape in args.shapes:
        settings = {
            "device": "cuda" if on_cuda else "cpu",
            "shape": shape,
            "micro": SHAPES[shape]["micro"],
            "prompt_tokens": 64,
            **{key: getattr(args, key) for key in ("prompts", "group", "new", "steps", "warm", "dtype")},
        }
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_model(folder, build(shape), args.prompts * (args.warm + args.steps + 4), 64)
            if on_cuda:
                torch.cuda.empty_cache()  # the card belongs to the run
            said, found = said_before(folder, settings, card), measured(folder, settings, args.limit)
        print(row(shape, said, found), flush=True)
        if found.get("notes") or "tail" in found:
            print("  " + "; ".join(found.get("notes", [])) + found.get("tail", ""), flush=True)
        with args.out.open("a") as file:
            file.write(json.dumps({"card": card, "settings": settings, "said": said, **found}) + "\n")


if __name__ == "__main__":
    main()
