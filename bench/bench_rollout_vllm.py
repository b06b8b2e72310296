"""vLLM at the lengths of `bench_rollout.py --long`: the same shape, prompts and number of samples, on one GPU.

    PYTHONPATH=. python bench/bench_rollout_vllm.py --shape qwen2.5-1.5b [--lengths 512 1024 2048 4096]

Random weights, no end token, temperature 1, log-probs kept, one engine for all lengths; a short call first. One JSON line a
length on stdout as soon as it is there. The process needs vLLM, and ends by itself: its engine leaves threads behind.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from typing import Any

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}

import torch
from bench_rollout import LONG_SIZES, SHAPES, build_model, build_requests


def main() -> None:
    """Prints what each length took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-1.5b")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LONG_SIZES))
    parser.add_argument("--memory", type=float, default=0.6, help="share of the GPU for weights and cache")
    args = parser.parse_args()
    requests = build_requests(args, SHAPES[args.shape]["vocab_size"])
    with tempfile.TemporaryDirectory() as folder:
        model = build_model(args.shape, "cuda", torch.bfloat16)
        model.save_pretrained(folder)
        del model
        torch.cuda.empty_cache()
        began = time.perf_counter()
        import vllm

        engine = vllm.LLM(
            model=folder,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            gpu_memory_utilization=args.memory,
            max_model_len=max(args.lengths) + 2 * args.prompt_tokens,
            max_num_seqs=args.prompts * args.group,
            seed=0,
        )
        made = time.perf_counter() - began
    prompts: list[Any] = [{"prompt_token_ids": request.prompt_ids} for request in requests]

    def generate(new: int) -> int:
        settings = vllm.SamplingParams(
            n=args.group, max_tokens=new, temperature=1.0, ignore_eos=True, logprobs=0, detokenize=False
        )
        done = engine.generate(prompts, settings, use_tqdm=False)
        return sum(len(sample.token_ids) for answer in done for sample in answer.outputs)

    generate(16)
    for new in args.lengths:
        torch.cuda.synchronize()
        start = time.perf_counter()
        tokens = generate(new)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        said = {"side": "vllm", "version": vllm.__version__, "samples": args.prompts * args.group, "new": new}
        rate = {"seconds": seconds, "tokens": tokens, "tokens_per_second": tokens / seconds}
        print(json.dumps(said | rate | {"make_seconds": made}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
