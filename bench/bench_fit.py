"""What `grpo check --gpu` says of a run beside what the run takes: memory and seconds of a step, on this machine's card.

    PYTHONPATH=.:verifiers python bench/bench_fit.py [--rows 7b-4bit 16k 64k llama-1b qwen3-4b] [--budget 190]

Random weights of real shapes (`known_shapes.json`). Samples are full: random weights end none. Those of long rows are made up, so that
their update alone is timed, and no cache counts. A process of its own a row. Printed: GiB that torch gave out at most and that it
reserved, seconds of generation and of the rest (median of n after the warm ones), each with what was said before. A row that
would begin after the budget is left out, one that takes longer than its limit is ended. The rows of `TUNED` are those that constants of
`sizing/` were set by; of the others nothing was. One JSON line a row goes to $OUT/bench_fit.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from step_sides import own_recipe, time_recipe, write_model

RIGHT, WRONG = ord("a") - ord("!"), ord("z") - ord("!")
"""Tokens that the reward pays at the end of a sample, and does not."""
PROMPT = 64
"""Tokens of a prompt, about."""
LORA = {"lora": {"r": 16}}
SMALL = {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 300, "tie_word_embeddings": True}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A shape, what the recipe says of it beside `own_recipe`, and completions of a step: prompts x group x tokens, in micro-batches."""

    shape: str
    model: dict[str, Any]
    prompts: int
    group: int
    new: int
    micro: int
    recompute: str = "no"
    is_made_up: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """As `step_sides` has them."""
        return {"prompts": self.prompts, "group": self.group, "new": self.new, "micro": self.micro}

    def recipe(self, folder: Path, steps: int) -> dict[str, Any]:
        """What is run and predicted."""
        said = own_recipe(folder, self.settings, steps, **self.model)
        said["train"]["recompute"] = self.recompute
        return said


ROWS = {
    "135m": Row("SmolLM2-135M", {"dtype": "bfloat16"}, 32, 8, 256, 64),
    "1.5b": Row("Qwen2.5-1.5B", {"dtype": "bfloat16"}, 32, 8, 256, 32),
    "7b-lora": Row("Qwen2.5-7B", LORA, 32, 8, 256, 16),
    "7b-4bit": Row("Qwen2.5-7B", LORA | {"load_in_4bit": True}, 8, 8, 256, 8, "selective"),
    "16k": Row("Qwen3-0.6B", {"dtype": "bfloat16"}, 2, 2, 16_000, 1, is_made_up=True),
    "64k": Row("Qwen3-0.6B", {"dtype": "bfloat16"}, 1, 2, 64_000, 1, "selective", is_made_up=True),
    "llama-1b": Row("Llama-3.2-1B", {}, 16, 8, 256, 16),
    "qwen3-4b": Row("Qwen3-4B", LORA, 16, 8, 256, 16, "selective"),
    "tiny": Row("", {}, 2, 2, 12, 2, "selective"),
    "tiny-long": Row("", {}, 2, 2, 300, 1, is_made_up=True),
}
TUNED = ("135m", "1.5b", "7b-lora")
DEFAULT = ("7b-4bit", "16k", "64k", "llama-1b", "qwen3-4b")


def build(shape: str) -> Any:
    """Random weights in bfloat16, on the card where there is one."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from grpo_cli.policy.loading.sizes import known_shapes

    keys = dict(known_shapes()[shape]) if shape else dict(SMALL)
    more = {"max_position_embeddings": 131_072, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = AutoConfig.for_model(keys.pop("model_type"), **(keys | more))
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def train(folder: Path, row: Row, warm: int, timed: int) -> None:
    """`grpo train`, left when the last timed step is over; one JSON line of what it took."""
    import torch
    from transformers import TrainerCallback

    from grpo_cli.jobs.train import setup
    from grpo_cli.rollout.engine import Completion
    from grpo_cli.rollout.graph.engine import GraphEngine

    notes: list[str] = []
    if row.is_made_up:

        def generate(_: Any, requests: Any, *__: Any, **___: Any) -> Any:
            generator = torch.Generator().manual_seed(0)
            ids = torch.randint(3, 250, (row.new - 1,), generator=generator).tolist()
            # every second one ends as the reward has it: a group that is all alike is not trained on
            ends = [[*ids, RIGHT], [*ids, WRONG]]
            return [[Completion(ends[i % 2], [-10.0] * row.new, "length") for i in range(one.n)] for one in requests]

        GraphEngine.generate = generate  # type: ignore[method-assign]
        setup.check_agreement = lambda *_: None  # made-up samples have made-up log-probs

    class Leaves(TrainerCallback):  # type: ignore[misc]
        begun = 0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.begun += 1
            if self.begun > warm + timed:
                counted = (torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved)
                peak, reserved = (one() if torch.cuda.is_available() else None for one in counted)
                print("RESULT " + json.dumps({"peak": peak, "reserved": reserved, "notes": notes}), flush=True)
                os._exit(0)

    time_recipe(row.recipe(folder, warm + timed + 2), folder, Leaves, notes.append)


def said_before(folder: Path, row: Row, card: str) -> dict[str, float]:
    """What the sums say of it: bytes and seconds."""
    from grpo_cli.policy.loading.files import model_files
    from grpo_cli.policy.loading.sizes import read_sizes
    from grpo_cli.recipe.arithmetic import plan
    from grpo_cli.recipe.sections.recipe import Recipe
    from grpo_cli.sizing.cards import read_cards
    from grpo_cli.sizing.fit import CardQuestion, fit, lengths_of
    from grpo_cli.sizing.work import held, pass_bytes

    recipe = Recipe.model_validate(row.recipe(folder, 10))
    sizes = read_sizes(recipe.model, model_files(recipe.model))
    assert sizes is not None
    counts = lengths_of([PROMPT - 8 + at % 16 for at in range(64)], row.new)
    found = fit(recipe, sizes, plan(recipe, 10 * row.prompts), counts, CardQuestion(read_cards(card)))
    peak = found.memory.peak
    if row.is_made_up:  # no cache was made
        peak = sum(held(found.work).values()) + sum(pass_bytes(found.work).values())
    took = found.duration
    times = {"generate": took.generate, "rest": took.update + took.other}
    return {"peak": peak, "reserved": peak + found.memory.pool, **times}


def measured(folder: Path, name: str, args: argparse.Namespace, limit: float) -> dict[str, Any]:
    """The run in a process of its own, and what its records say of its steps."""
    command = [
        sys.executable,
        __file__,
        "--folder",
        str(folder),
        "--rows",
        name,
        "--warm",
        str(args.warm),
        "--steps",
        str(args.steps),
    ]
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
    steps = [step for step in steps if "time/generate" in step][args.warm :]
    return found | {
        "n": len(steps),
        "generate": [step["time/generate"] for step in steps],
        "rest": [step["time/step"] - step["time/generate"] for step in steps],
    }


def line(name: str, said: dict[str, float], found: dict[str, Any]) -> str:
    """One line of the table."""
    if "failed" in found:
        return f"| {name} | failed: {found['failed']} |"

    def beside(key: str, unit: float, form: str) -> str:
        got = found[key] if key in ("peak", "reserved") else statistics.median(found[key])
        if not got or (key == "generate" and ROWS[name].is_made_up):
            return f"{said[key] / unit:{form}} / -"
        return f"{said[key] / unit:{form}} / {got / unit:{form}} ({said[key] / got - 1:+.0%})"

    cells = [
        beside("peak", 2**30, ".1f"),
        beside("reserved", 2**30, ".1f"),
        beside("generate", 1, ".3f"),
        beside("rest", 1, ".3f"),
    ]
    return f"| {name}{' (tuned on)' if name in TUNED else ''} | {' | '.join(cells)} | {found['n']} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=DEFAULT)
    parser.add_argument("--steps", type=int, default=2, help="timed steps")
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--limit", type=float, default=90, help="seconds for one row")
    parser.add_argument("--budget", type=float, default=190, help="seconds for all rows")
    parser.add_argument("--card", help="whose numbers to say, where this machine has none")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "bench_fit.jsonl")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder is not None:
        train(args.folder, ROWS[args.rows[0]], args.warm, args.steps)
        raise SystemExit("the run ended before its last step was timed")
    import torch

    began, on_cuda = time.perf_counter(), torch.cuda.is_available()
    card = args.card or (torch.cuda.get_device_name() if on_cuda else "H200")
    print(f"said / measured, {card}, torch {torch.__version__}")
    print("| row | peak GiB | reserved GiB | generate s | rest s | n |\n" + "|---" * 6 + "|", flush=True)
    shm = Path("/dev/shm")
    for name in args.rows:
        row, left = ROWS[name], args.budget - (time.perf_counter() - began)
        if left < 15:
            print(f"| {name} | left out: {args.budget:.0f} s are over |", flush=True)
            continue
        at = time.perf_counter()
        roomy = shm.is_dir() and shutil.disk_usage(shm).free > 24 * 2**30  # weights are written and read once
        with tempfile.TemporaryDirectory(dir=shm if roomy else None) as place:
            folder = Path(place)
            model = build(row.shape)
            write_model(folder, model, row.prompts * (args.warm + args.steps + 4), PROMPT)
            del model
            if on_cuda:
                torch.cuda.empty_cache()  # the card belongs to the run
            said = said_before(folder, row, card)
            found = measured(
                folder, name, args, max(10.0, min(args.limit, args.budget - (time.perf_counter() - began)))
            )
        took = time.perf_counter() - at
        print(line(name, said, found), flush=True)
        print("  " + "; ".join([f"{took:.0f} s", *found.get("notes", [])]) + found.get("tail", ""), flush=True)
        with args.out.open("a") as file:
            file.write(json.dumps({"card": card, "row": name, "said": said, "took_s": took, **found}) + "\n")


if __name__ == "__main__":
    main()
