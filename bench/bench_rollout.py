"""Rollout engines against TRL's default generation, as ratios from one run: `PYTHONPATH=. python bench/bench_rollout.py`.

TRL's default is one `model.generate` call on left-padded prompts, each repeated `group` times. Weights are random: only
shapes matter. `--end-share` is the share of the vocabulary that ends a sample, so that lengths differ as in training.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from grpo_cli.rollout.engine import Request, SamplingSettings
from grpo_cli.rollout.make import make_engine

SHAPES: dict[str, dict[str, Any]] = {
    "quickstart": {
        "vocab_size": 266,
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
    },
    "smollm2-135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    },
    "qwen2.5-1.5b": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "attention_bias": True,
    },
}


SIZES, LONG_SIZES = (64, 128, 256, 512, 1024), (512, 1024, 2048, 4096)


def build_model(shape: str, device: str, dtype: torch.dtype) -> LlamaForCausalLM:
    """Random weights of a known shape."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **SHAPES[shape], max_position_embeddings=8192, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None
    )
    with torch.device(device):
        return LlamaForCausalLM(config).to(dtype=dtype).eval()


def build_requests(args: argparse.Namespace, vocabulary: int) -> list[Request]:
    """Prompts of random tokens whose lengths vary by a quarter around `--prompt-tokens`."""
    generator = torch.Generator().manual_seed(1)
    low, high = max(1, args.prompt_tokens * 7 // 8), args.prompt_tokens * 9 // 8 + 1
    lengths = torch.randint(low, high, (args.prompts,), generator=generator).tolist()
    return [
        Request(torch.randint(0, vocabulary, (length,), generator=generator).tolist(), args.group) for length in lengths
    ]


def trl_default(
    model: LlamaForCausalLM, requests: list[Request], ends: list[int], new: int, autocast: bool = False
) -> int:
    """What TRL's trainer calls; returns the number of tokens kept."""
    device = next(model.parameters()).device
    longest = max(len(r.prompt_ids) for r in requests)
    ids = [[0] * (longest - len(r.prompt_ids)) + r.prompt_ids for r in requests for _ in range(r.n)]
    mask = [[0] * (longest - len(r.prompt_ids)) + [1] * len(r.prompt_ids) for r in requests for _ in range(r.n)]
    config = GenerationConfig(
        max_new_tokens=new,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=ends or None,
        pad_token_id=0,
    )
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=autocast):
        out = model.generate(
            input_ids=torch.tensor(ids, device=device),
            attention_mask=torch.tensor(mask, device=device),
            generation_config=config,
            disable_compile=True,
        )[:, longest:]
    is_end = torch.isin(out, torch.tensor(ends, device=device, dtype=out.dtype))
    first = torch.where(is_end.any(1), is_end.int().argmax(1) + 1, out.shape[1])
    return int(first.sum())


def measure(call: Any, repeats: int, device: str) -> dict[str, float]:
    """Medians over `repeats` calls."""
    wall, cpu, rate = [], [], []
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats):
        if device == "cuda":
            torch.cuda.synchronize()
        start, spent = time.perf_counter(), time.process_time()
        tokens = call()
        if device == "cuda":
            torch.cuda.synchronize()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - spent)
        rate.append(tokens / (wall[-1] if device == "cuda" else cpu[-1]))
    return {
        "seconds": statistics.median(wall),
        "cpu_seconds": statistics.median(cpu),
        "tokens": tokens,
        "tokens_per_second": statistics.median(rate),
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else 0,
    }


def main() -> None:
    """Prints one JSON object: settings, both engines and their ratio (tokens a CPU-second, or a second on CUDA)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="quickstart")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=12)
    parser.add_argument("--new", type=int, default=40)
    parser.add_argument("--end-share", type=float, default=0.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="")
    parser.add_argument("--autocast", action="store_true", help="both in bf16 over float32 weights")
    parser.add_argument("--max-rows", type=int, default=None)
    parser.add_argument("--profile", action="store_true", help="then where the engine's time goes")
    parser.add_argument("--ablate", action="store_true", help="also with each fused part left out (CUDA)")
    parser.add_argument("--table", action="store_true", help="also the engine alone at 64 to 1024 samples and tokens")
    parser.add_argument(
        "--long", action="store_true", help="the engine alone at 512 to 4096 tokens, beside the memory floor (CUDA)"
    )
    parser.add_argument("--engine-only", action="store_true")
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype or ("bfloat16" if args.device == "cuda" else "float32"))
    model = build_model(args.shape, args.device, dtype)
    vocabulary = model.config.vocab_size
    ends = list(range(round(args.end_share * vocabulary)))
    requests = build_requests(args, vocabulary)
    start = time.perf_counter()
    autocast = torch.bfloat16 if args.autocast else None
    engine = make_engine("graph", model, end_ids=ends, max_rows=args.max_rows, autocast=autocast)
    made = time.perf_counter() - start
    settings = SamplingSettings(args.new)

    def rollout() -> int:
        return sum(len(c.token_ids) for row in engine.generate(requests, settings) for c in row)

    rollout()
    first = time.perf_counter() - start
    ours = measure(rollout, args.repeat, args.device)
    report: dict[str, Any] = {
        "settings": {**vars(args), "dtype": str(dtype), "threads": torch.get_num_threads()},
        "versions": {"torch": torch.__version__, "device": device_name(args.device)},
        "engine": ours,
        "make_seconds": made,
        "first_call_extra_seconds": first - made - ours["seconds"],
    }
    if args.device == "cuda":
        report["steps"] = decode_steps(engine, settings)
    for part, plain in (("attention", None), ("patches", ()), ("accept", None)) if args.ablate else ():
        engine.release()
        kept = getattr(engine, part)
        setattr(engine, part, plain)
        rollout()
        report[f"without_{part}"] = {**measure(rollout, args.repeat, args.device), **decode_steps(engine, settings)}
        setattr(engine, part, kept)
    if args.table:
        report["table"] = [
            scale(engine, args, vocabulary, samples, new)
            for samples, new in [(s, args.new) for s in SIZES] + [(args.prompts * args.group, n) for n in SIZES]
        ]
    if args.long:
        report["long"] = []
        for new in LONG_SIZES:
            report["long"].append(long_samples(engine, args, vocabulary, new))
            print("long", json.dumps(report["long"][-1]), file=sys.stderr, flush=True)
    engine.release()
    if not args.engine_only:
        trl_default(model, requests, ends, min(args.new, 4), args.autocast)
        theirs = measure(
            lambda: trl_default(model, requests, ends, args.new, args.autocast), min(2, args.repeat), args.device
        )
        report["trl_default"] = theirs
        report["ratio"] = ours["tokens_per_second"] / theirs["tokens_per_second"]
    print(json.dumps(report, indent=1))
    if args.profile:
        rollout()
        profile(rollout, args.device)


def scale(engine: Any, args: argparse.Namespace, vocabulary: int, samples: int, new: int) -> dict[str, float]:
    """The engine's seconds for `samples` samples of `new` tokens, after a first call that captures."""
    sized = argparse.Namespace(**{**vars(args), "prompts": max(1, samples // args.group)})
    requests = build_requests(sized, vocabulary)
    settings = SamplingSettings(new)
    engine.generate(requests, settings)
    call = measure(
        lambda: sum(len(c.token_ids) for row in engine.generate(requests, settings) for c in row),
        args.repeat,
        args.device,
    )
    return {"samples": samples, "new": new, **call}


def long_samples(engine: Any, args: argparse.Namespace, vocabulary: int, new: int) -> dict[str, float]:
    """One call at this length, whose captures are counted beside it, and how far above the memory floor a step at half of it
    is: growth beyond the floor's shows as a ratio that rises."""
    requests, settings = build_requests(args, vocabulary), SamplingSettings(new)
    before = engine.stepper.capture_seconds
    call = measure(lambda: sum(len(c.token_ids) for row in engine.generate(requests, settings) for c in row), 1, "cuda")
    captured = engine.stepper.capture_seconds - before
    step = decode_steps(engine, settings)
    return {
        "samples": args.prompts * args.group,
        "new": new,
        **{key: call[key] for key in ("seconds", "tokens", "peak_memory_bytes")},
        "capture_seconds": captured,
        "tokens_per_second": call["tokens"] / (call["seconds"] - captured),
        **{key: step[key] for key in ("milliseconds", "floor_milliseconds", "cache_reserved_bytes")},
        "times_floor": step["milliseconds"] / step["floor_milliseconds"],
    }


def profile(call: Any, device: str) -> None:
    """The functions (CPU) or kernels (CUDA) that take the time."""
    if device == "cpu":
        import cProfile

        cProfile.runctx("call()", globals(), {"call": call}, sort="tottime")
        return
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    print(profiler.key_averages().table(sort_by="cuda_time_total", row_limit=40, max_name_column_width=70))


def decode_steps(engine: Any, settings: SamplingSettings) -> dict[str, Any]:
    """Milliseconds of the widest captured step at mid-length, and of the bytes it must at least move."""
    batch = engine._batches[settings]
    rows = max(rows for rows, _ in batch.graphs)
    length = max(length for width, length in batch.graphs if width == rows)
    batch.rows.sample.fill_(0)
    middle = batch.store.columns // 2
    times = []
    for _ in range(20):
        batch.rows.position.fill_(middle)
        batch.rows.step.fill_(1)
        batch.rows.sample.fill_(0)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        batch.graphs[rows, length]()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    weights = sum(p.numel() * p.element_size() for p in engine.model.parameters())
    cache = rows * middle * batch.store.layout.token_bytes
    bandwidth = copy_bandwidth()
    return {
        "rows": rows,
        "column": middle,
        "milliseconds": statistics.median(times),
        "weight_bytes": weights,
        "cache_bytes": cache,
        "bandwidth": bandwidth,
        "floor_milliseconds": (weights + cache) / bandwidth * 1e3,
        "captures": engine.stepper.captures,
        "capture_seconds": engine.stepper.capture_seconds,
        "cache_reserved_bytes": batch.store.rows * batch.store.columns * batch.store.layout.token_bytes,
    }


def copy_bandwidth() -> float:
    """Bytes read and written a second by a large device copy."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(8):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return 2 * 2**30 / (statistics.median(times) / 1e3)


def device_name(device: str) -> str:
    """The card, or cpu."""
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


if __name__ == "__main__":
    main()
