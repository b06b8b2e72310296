"""A process of llama.cpp (the package `xllamacpp`, which carries it built): loads a `.gguf` file and continues prompts greedily.

Reads one JSON object from stdin: `file`, `prompts` (texts, or lists of ids), `tokens` to make of each. Prints one: of each prompt
its number of tokens and what follows.
"""

from __future__ import annotations

import json
import sys

import xllamacpp


def main() -> None:
    said = json.load(sys.stdin)
    params = xllamacpp.CommonParams()
    params.model.path = said["file"]
    params.n_ctx, params.n_parallel, params.n_gpu_layers = 512, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    # its own default of float16 moves a close choice
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.warmup, params.fit_params = False, False
    server = xllamacpp.Server(params)
    greedy = {"temperature": 0, "top_k": 1, "samplers": ["top_k"], "ignore_eos": True, "cache_prompt": False}
    found = []
    for prompt in said["prompts"]:
        done = server.handle_completions(greedy | {"prompt": prompt, "max_tokens": said["tokens"]})
        found.append([done["usage"]["prompt_tokens"], done["choices"][0]["text"]])
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
