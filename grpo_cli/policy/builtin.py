"""Models made on the spot: `builtin:tiny`, a byte-level Llama of 0.36 M parameters with random weights.

It goes through the code a hub checkpoint goes through (chat template, save, load). Without a warm-up it knows nothing.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from grpo_cli.policy.contract import Tokenizer
from grpo_cli.policy.tiny import CHAT_TEMPLATE, byte_level, sizes


def byte_tokenizer(context: int | None = None) -> PreTrainedTokenizerFast:
    """The tokenizer of `tiny.byte_level` as transformers wants it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_level(),
        pad_token="<|pad|>",
        eos_token="<|end|>",
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        model_max_length=sizes(context)["max_position_embeddings"],
    )


def tiny_llama(tokenizer: Tokenizer, seed: int, context: int | None = None) -> LlamaForCausalLM:
    """Three layers of width 96, tied embeddings, float32, seeded."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            **sizes(context),
            bos_token_id=None,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model
