"""A whole GRPO step, `grpo train` against plain `trl` with the same settings, in processes of their own.

    PYTHONPATH=.:verifiers python tests/bench/bench_step.py [--shape quickstart|smollm2-135m] [--steps 6]

On CUDA the default is the shape of SmolLM2-135M, 32 prompts x 8 samples x 256 tokens; on a CPU the quickstart's. Weights
are random, so samples run to their last token: no gain from samples that end early, and the reward (a pattern about
half of them match) leaves next to no group without signal, so none from dropping those either. The plain side is a
`GRPOTrainer` with its own generation and the same batch split, TRL's gradient checkpointing off as ours is.
Seconds are wall seconds on CUDA and CPU seconds elsewhere, means over the steps after the warm-up ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATTERN = "[a-m]\\s*$"


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

    def report(self) -> None:
        """One JSON line on stdout."""
        import torch

        timed = self.steps[self.warm :]
        mean = {key: statistics.fmean(step[key] for step in timed) for key in ("step", "generate")}
        peak = torch.cuda.max_memory_allocated() / 2**30 if self.device == "cuda" else None
        first = self.steps[0]["step"]
        print(
            json.dumps(
                {
                    **mean,
                    "update": mean["step"] - mean["generate"],
                    "first_step": first,
                    "timed_steps": len(timed),
                    "peak_gib": peak,
                }
            )
        )


def write_model(folder: Path, shape: str, prompts: int, prompt_tokens: int) -> None:
    """Random weights with a tokenizer of as many byte strings as the vocabulary has, and rows."""
    import torch
    from bench_rollout import SHAPES, build_model
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    size = SHAPES[shape]["vocab_size"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, *(f"{a}{b}{c}" for a in letters[:200] for b in letters[:50] for c in letters[64:90])]
    inner = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words[:size])}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    pad, end = words[size - 2], words[size - 1]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token=pad, eos_token=end, padding_side="left"
    )
    model = build_model(shape, "cpu", torch.float32)
    model.config.pad_token_id, model.config.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = [
        {"prompt": f"{i:04} " + "x" * (prompt_tokens - 13 + i % 16), "answer": "1"}
        for i in range(prompts * 40)
    ]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")


def own(folder: Path, settings: dict[str, Any]) -> None:
    """`grpo train` on a recipe of these settings."""
    from grpo_cli.commands.environment import quiet_libraries
    from grpo_cli.recipe.sections.recipe import Recipe

    quiet_libraries()
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.train.job import Job
    from grpo_cli.rollout.graph.engine import GraphEngine

    recipe = Recipe.model_validate(
        {
            "grpo": 1,
            "model": {"path": str(folder / "model"), "dtype": settings["dtype"]},
            "data": {
                "train": str(folder / "rows.jsonl"),
                "prompt": "{prompt}",
                "answer": "{answer}",
                "plain": True,
            },
            "verify": {"regex": {"pattern": PATTERN}},
            "sample": {
                "prompts": settings["prompts"],
                "group": settings["group"],
                "max_tokens": settings["new"],
                "micro_batch": settings["micro"],
                "engine": "graph",
            },
            "train": {
                "steps": settings["steps"] + settings["warm"] + 1,
                "lr": 1e-6,
            },
            "monitor": {"kl": "off"},
            "run": {"dir": str(folder / "runs"), "save_every": 10_000},
        }
    )
    parts = Parts(settings)
    GraphEngine.generate = parts.timed_generation(GraphEngine.generate)  # type: ignore[method-assign]

    class Timed(Job):
        def _trainer(self, *args: Any) -> Any:
            trainer = super()._trainer(*args)
            trainer.add_callback(parts.callback())
            return trainer

    Timed(recipe, label="bench", base=folder, display=make_display("none")).run()
    parts.report()


def plain(folder: Path, settings: dict[str, Any]) -> None:
    """TRL's own trainer, its generation, every row through the loss."""
    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from grpo_verifiers import as_reward, build

    on_cpu = settings["device"] != "cuda"
    dtype = torch.bfloat16 if settings["dtype"] == "bfloat16" else torch.float32
    total = settings["prompts"] * settings["group"]
    micro = settings["micro"] or total
    parts = Parts(settings)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype),
        processing_class=AutoTokenizer.from_pretrained(folder / "model", padding_side="left"),
        reward_funcs=as_reward(build("regex", pattern=PATTERN)),
        train_dataset=load_dataset("json", data_files=str(folder / "rows.jsonl"), split="train"),
        args=GRPOConfig(
            output_dir=str(folder / "plain"),
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=total // micro,
            num_generations=settings["group"],
            max_completion_length=settings["new"],
            max_steps=settings["steps"] + settings["warm"] + 1,
            learning_rate=1e-6,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=on_cpu,
            bf16=not on_cpu,
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
        callbacks=[parts.callback()],
    )
    trainer._generate_single_turn = parts.timed_generation(trainer._generate_single_turn)
    trainer.train()
    parts.report()


def side(name: str, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """One side in a process of its own."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "verifiers"), os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "datasets"),
    }
    command = [
        sys.executable,
        __file__,
        "--side",
        name,
        "--folder",
        str(folder),
        "--settings",
        json.dumps(settings),
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the {name} side failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Prints one JSON object: both sides and the ratios plain / own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
        write_model(folder, settings["shape"], args.prompts, prompt_tokens)
        fewer = settings | {"steps": args.plain_steps or args.steps, "warm": min(args.warm, 1)}
        found = {
            name: side(name, folder, settings if name == "own" else fewer)
            for name in ("own", "plain")
            if args.only in (None, name)
        }
    keys = ("step", "generate", "update") if args.only is None else ()
    ratios = {key: found["plain"][key] / found["own"][key] for key in keys}
    device = torch.cuda.get_device_name() if on_cuda else f"cpu, {torch.get_num_threads()} threads"
    print(
        json.dumps(
            {"device": device, "torch": torch.__version__, "settings": settings, **found, "ratio": ratios},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
