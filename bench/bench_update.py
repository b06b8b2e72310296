"""The update of a GRPO step, ours against TRL's with and without liger-kernel, on one card in one call.

    PYTHONPATH=.:verifiers python bench/bench_update.py [--shapes smollm2-135m qwen2.5-1.5b] [--sides own plain liger]

32 prompts of about 64 tokens x 8 samples x 256 tokens, random weights in bfloat16. Samples are drawn at random, not from
the model: only what comes after generation is timed (verdicts, advantages, loss, backward, optimizer, records). Every
side is a process of its own with a limit, gets the same rows and tokens, and the same split into micro-batches.

Printed for each: seconds (median of n, least and most), peak GiB of the run, launches and kernels of one step,
the share of the step in which the GPU was busy, and what the model's own arithmetic comes to (no padding, each row with
its prompt: the same count for every side) in TFLOP/s and as a share of the card's measured bfloat16 rate.
One JSON line a side goes to $OUT/bench_update.jsonl, or where --out says.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from step_sides import plain_trainer, run_own, side_command, side_environment, write_model
from update_clock import Clock

SIDES = ("own", "plain", "liger", "own-whole", "plain-whole", "colocate")
"""The last three time the whole step, generation included: ours, TRL's with `generate`, TRL's with vLLM on the same card."""
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"kind": "llama", "sizes": (300, 64, 96, 2, 4, 2), "micro": 8},
    "smollm2-135m": {"kind": "llama", "sizes": (49152, 576, 1536, 30, 9, 3), "micro": 64},
    "qwen2.5-1.5b": {"kind": "qwen2", "sizes": (151936, 1536, 8960, 28, 12, 2), "micro": 32},
    "qwen2.5-3b": {"kind": "qwen2", "sizes": (151936, 2048, 11008, 36, 16, 2), "micro": 16},
    "qwen2.5-7b-lora": {"kind": "qwen2", "sizes": (152064, 3584, 18944, 28, 28, 4), "micro": 16, "lora": 16},
}
"""Vocabulary, width, width of the MLP, layers, heads, key heads; completions a forward pass; rank of the adapters."""


def root() -> Path:
    """The project: where --root says, else one folder up from `bench`."""
    return Path(os.environ.get("BENCH_ROOT") or Path(__file__).resolve().parents[1])


def build_config(shape: str) -> Any:
    """The transformers config of a shape."""
    from transformers import LlamaConfig, Qwen2Config

    vocabulary, width, inner, layers, heads, key_heads = SHAPES[shape]["sizes"]
    kind = {"llama": LlamaConfig, "qwen2": Qwen2Config}[SHAPES[shape]["kind"]]
    return kind(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
        bos_token_id=None,
        eos_token_id=None,
    )


def build(shape: str, autocast: bool = False) -> Any:
    """Random weights of a shape, in bfloat16, or in float32 for an autocast to it."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        dtype = torch.float32 if autocast else torch.bfloat16
        return AutoModelForCausalLM.from_config(build_config(shape), dtype=dtype)


def draw(settings: dict[str, Any], call: int, rows: int) -> list[list[int]]:
    """Token ids of `rows` samples, the same for every side; `--end-early` lets their lengths vary from an eighth up."""
    import torch

    generator = torch.Generator().manual_seed(1000 + call)
    vocabulary, new = SHAPES[settings["shape"]]["sizes"][0], settings["new"]
    ids = torch.randint(3, vocabulary - 2, (rows, new), generator=generator)
    lengths = [new] * rows
    if settings["end_early"]:
        lengths = torch.randint(new // 8, new + 1, (rows,), generator=generator).tolist()
    return [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]


def own(folder: Path, settings: dict[str, Any]) -> None:
    """`grpo train` on a recipe of these settings, its engine's samples replaced."""
    from grpo_cli.rollout.engine import Completion
    from grpo_cli.rollout.graph.engine import GraphEngine

    clock = Clock(settings, draw)

    def generate(self: Any, requests: Any, _settings: Any, on_finish: Any = None, on_progress: Any = None) -> Any:
        flat = iter(clock.sample(sum(request.n for request in requests)))
        return [
            [Completion(ids, [-10.0] * len(ids), "length") for ids in (next(flat) for _ in range(request.n))]
            for request in requests
        ]

    if not settings["whole"]:
        from grpo_cli.jobs.train import setup

        GraphEngine.generate = generate  # type: ignore[method-assign]
        setup.check_agreement = lambda *_: None  # made-up samples have made-up log-probs

    rank = SHAPES[settings["shape"]].get("lora")
    adapters = {"lora": {"r": rank, "alpha": 2 * rank}} if rank else {}
    steps = settings["warm"] + settings["steps"] + 3
    dtype = "auto" if settings["autocast"] else "bfloat16"
    run_own(folder, settings, steps, clock.callback, clock.notes.append, dtype=dtype, **adapters)


def plain(folder: Path, settings: dict[str, Any], liger: bool = False, colocate: bool = False) -> None:
    """TRL's own trainer, every row through the loss, its samples replaced."""
    if colocate:
        with suppress(ImportError):
            __import__("vllm_stub")  # packages that vLLM only imports, where they are missing
    import torch
    from peft import LoraConfig

    clock = Clock(settings, draw)
    rank = SHAPES[settings["shape"]].get("lora")
    adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear") if rank else None
    engine = {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": 0.3,
        "vllm_max_model_length": settings["new"] + 256,
    }
    trainer = plain_trainer(
        folder, settings, settings["warm"] + settings["steps"] + 3,
        torch.float32 if settings["autocast"] else torch.bfloat16, clock.callback(), adapters,
        bf16=True, use_liger_kernel=liger, gradient_checkpointing=bool(rank), **(engine if colocate else {}),
    )  # fmt: skip
    if not settings["whole"]:
        trainer._generate_single_turn = lambda prompt_ids, *_, **__: (clock.sample(len(prompt_ids)), None)
    trainer.train()


def side(name: str, folder: Path, settings: dict[str, Any], limit: float) -> dict[str, Any]:
    """One side in a process group of its own, which is ended after `limit` seconds."""
    env = side_environment(folder, root()) | {
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"),
    }
    command = side_command(__file__, name, folder, settings)
    log = folder / f"{name}.log"
    began = time.perf_counter()
    with log.open("w") as file:
        child = subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | str = child.wait(limit)
        except subprocess.TimeoutExpired:
            code = f"ended after {limit:.0f} s"
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    text = log.read_text()
    for line in reversed(text.splitlines()):
        if line.startswith("RESULT "):
            found: dict[str, Any] = json.loads(line[7:])
            return found | {"whole_s": time.perf_counter() - began}
    return {"failed": str(code), "tail": text[-3000:]}


def model_flops(settings: dict[str, Any]) -> float:
    """Operations that one update needs at least: forward and twice that backward, no padding, nothing made twice."""
    vocabulary, width, inner, layers, heads, key_heads = SHAPES[settings["shape"]]["sizes"]
    body = layers * (2 * width * width + 2 * width * width * key_heads // heads + 3 * width * inner)
    total = 0.0
    for row in range(settings["prompts"]):
        prompt = settings["prompt_tokens"] - 8 + row % 16
        for ids in draw(settings, settings["warm"], settings["prompts"] * settings["group"])[
            row * settings["group"] : (row + 1) * settings["group"]
        ]:
            tokens = prompt + len(ids)
            total += 6 * body * tokens + 6 * vocabulary * width * len(ids)
            total += 3 * 4 * width * layers * tokens * (tokens + 1) / 2
    return total


def card_rate() -> float:
    """TFLOP/s of a large bfloat16 matrix product on random numbers, the ceiling that shares are quoted against."""
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(20):
        a @ b
    end.record()
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / begin.elapsed_time(end) / 1e9


def machine(on_cuda: bool) -> dict[str, Any]:
    """Card, host, versions."""
    import torch

    found: dict[str, Any] = {"host": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    with suppress(OSError):
        models = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if "model name" in line
        ]
        found["host"] = models[0] if models else found["host"]
    if on_cuda:
        found |= {"card": torch.cuda.get_device_name(), "bf16_tflops": card_rate()}
    for name in ("torch", "triton", "transformers", "trl", "liger-kernel", "accelerate"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def line(name: str, found: dict[str, Any], flops: float, rate: float | None) -> str:
    """One row of the table."""
    if "failed" in found:
        return f"| {name} | failed: {found['failed']} |"
    tflops = flops / found["seconds"] / 1e12
    share = f"{tflops / rate:.0%}" if rate else "-"

    def show(key: str, form: str) -> str:
        return format(found[key], form) if found.get(key) is not None else "-"

    return (
        f"| {name} | {found['seconds']:.3f} ({found['least']:.3f}-{found['most']:.3f}) | {found['n']} | {show('peak_gib', '.1f')} ({show('reserved_gib', '.1f')}) "
        f"| {show('launches', ',')} | {show('kernels', ',')} | {show('busy', '.0%')} | {tflops:.0f} | {share} |"
    )


SAME = ("prompts", "group", "new", "steps", "warm", "end_early", "prompt_tokens", "autocast", "host")
"""Options that every side is given."""
HEADER = (
    "| side | update s: median (least-most) | n | peak GiB (reserved) | launches | kernels | GPU busy | TFLOP/s | of bf16 rate |\n"
    + "|---" * 9
    + "|"
)


def main() -> None:
    """Prints a table a shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["smollm2-135m", "qwen2.5-1.5b"])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES[:3]))
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--micro", type=int, help="completions a forward pass (default: the shape's)")
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--end-early", action="store_true", help="samples of random lengths")
    parser.add_argument("--autocast", action="store_true", help="float32 weights under an autocast to bfloat16")
    parser.add_argument("--host", action="store_true", help="then where the processor's time of a step goes")
    parser.add_argument("--limit", type=float, default=150, help="seconds for one side")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "bench_update.jsonl")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        run = {
            "own": own,
            "plain": plain,
            "liger": lambda *a: plain(*a, liger=True),
            "colocate": lambda *a: plain(*a, colocate=True),
        }
        run[args.side.removesuffix("-whole")](args.folder, args.settings)
        raise SystemExit("the run ended before its last step was timed")
    import torch

    on_cuda = torch.cuda.is_available()
    here = machine(on_cuda)
    if on_cuda:
        torch.cuda.empty_cache()  # the card belongs to the sides
    print(
        ", ".join(f"{key} {value if isinstance(value, str | int) else round(value)}" for key, value in here.items()),
        flush=True,
    )
    for shape in args.shapes:
        settings = {
            "device": "cuda" if on_cuda else "cpu",
            "shape": shape,
            "micro": args.micro or SHAPES[shape]["micro"],
            **{key: getattr(args, key) for key in SAME},
        }
        flops = model_flops(settings)
        print(
            f"\n{shape}: {args.prompts} x {args.group} x {args.new}, micro-batch {settings['micro']}, {'float32 under autocast, ' if args.autocast else ''}{flops / 1e12:.0f} TFLOP\n{HEADER}",
            flush=True,
        )
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_model(
                folder, build(shape, args.autocast), args.prompts * (args.warm + args.steps + 4), args.prompt_tokens
            )
            if on_cuda:
                torch.cuda.empty_cache()
            for one in args.sides:
                whole = one in SIDES[3:]
                found = side(one, folder, settings | {"whole": whole}, args.limit)
                print(line(one, found, flops, here.get("bf16_tflops")), flush=True)
                for text in ("; ".join(found.get("notes") or []), *(found.get("host") or [])):
                    if text:
                        print("  " + text, flush=True)
                if "failed" in found:
                    print(found["tail"][-1500:], flush=True)
                with args.out.open("a") as file:
                    file.write(
                        json.dumps({"machine": here, "settings": settings, "side": one, "flops": flops, **found}) + "\n"
                    )


if __name__ == "__main__":
    main()
