"""Rollout engines against TRL's default generation, as ratios from one run: `PYTHONPATH=. python tests/bench/bench_rollout.py`.

TRL's default is one `model.generate` call on left-padded prompts, each repeated `group` times. Weights are random: only
shapes matter. `--end-share` is the share of the vocabulary that ends a sample, so that lengths differ as in training.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from grpo_cli.train.rollout.engine import Request, SamplingSettings
from grpo_cli.train.rollout.make import make_engine

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
}


def build_model(shape: str, device: str, dtype: torch.dtype) -> LlamaForCausalLM:
    """Random weights of a known shape."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **SHAPES[shape],
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).to(device=device, dtype=dtype).eval()


def build_requests(args: argparse.Namespace, vocabulary: int) -> list[Request]:
    """Prompts of random tokens whose lengths vary by a quarter around `--prompt-tokens`."""
    generator = torch.Generator().manual_seed(1)
    low, high = max(1, args.prompt_tokens * 7 // 8), args.prompt_tokens * 9 // 8 + 1
    lengths = torch.randint(low, high, (args.prompts,), generator=generator).tolist()
    return [
        Request(torch.randint(0, vocabulary, (length,), generator=generator).tolist(), args.group)
        for length in lengths
    ]


def trl_default(model: LlamaForCausalLM, requests: list[Request], ends: list[int], new: int) -> int:
    """What TRL's trainer calls; returns the number of tokens kept."""
    device = next(model.parameters()).device
    longest = max(len(r.prompt_ids) for r in requests)
    ids = [[0] * (longest - len(r.prompt_ids)) + r.prompt_ids for r in requests for _ in range(r.n)]
    mask = [
        [0] * (longest - len(r.prompt_ids)) + [1] * len(r.prompt_ids) for r in requests for _ in range(r.n)
    ]
    config = GenerationConfig(
        max_new_tokens=new,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=ends or None,
        pad_token_id=0,
    )
    with torch.no_grad():
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
    parser.add_argument("--autocast", action="store_true", help="the engine in bf16 over float32 weights")
    parser.add_argument("--max-rows", type=int, default=None)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype or ("bfloat16" if args.device == "cuda" else "float32"))
    model = build_model(args.shape, args.device, dtype)
    vocabulary = model.config.vocab_size
    ends = list(range(round(args.end_share * vocabulary)))
    requests = build_requests(args, vocabulary)
    start = time.perf_counter()
    autocast = torch.bfloat16 if args.autocast else None
    engine = make_engine("graph", model, end_ids=ends, max_rows=args.max_rows, autocast=autocast)
    settings = SamplingSettings(args.new)

    def rollout() -> int:
        return sum(len(c.token_ids) for row in engine.generate(requests, settings) for c in row)

    rollout()
    first = time.perf_counter() - start
    if args.profile:
        import cProfile

        cProfile.runctx("rollout()", globals(), locals(), sort="tottime")
        return
    ours = measure(rollout, args.repeat, args.device)
    trl_default(model, requests, ends, min(args.new, 4))
    theirs = measure(lambda: trl_default(model, requests, ends, args.new), args.repeat, args.device)
    report = {
        "settings": {**vars(args), "dtype": str(dtype), "threads": torch.get_num_threads()},
        "versions": {"torch": torch.__version__, "device": device_name(args.device)},
        "engine": ours,
        "trl_default": theirs,
        "first_call_extra_seconds": first - ours["seconds"],
        "ratio": ours["tokens_per_second"] / theirs["tokens_per_second"],
    }
    print(json.dumps(report, indent=1))


def device_name(device: str) -> str:
    """The card, or cpu."""
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


if __name__ == "__main__":
    main()
