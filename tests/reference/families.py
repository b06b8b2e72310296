"""Fourteen model families as tiny checkpoints with random weights, written where a recipe can name them.

The weights are large enough that the next token depends on what stands before it and where; a quarter of the byte
tokens ends an answer, so that answers differ in length without any training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from grpo_cli.policy.model import byte_tokenizer

CONTEXT = 96
_PLAIN: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.15,
}
_GROUPED = {**_PLAIN, "num_key_value_heads": 2}
_HEADS = {**_GROUPED, "head_dim": 8}
_GPT2 = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": CONTEXT,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "initializer_range": 0.15,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _GROUPED,
    "qwen2": _GROUPED,
    "qwen3": _HEADS,
    "mistral": {**_HEADS, "sliding_window": None},
    "gemma2": {**_HEADS, "query_pre_attn_scalar": 8, "sliding_window": 16},
    "gemma3_text": {**_HEADS, "query_pre_attn_scalar": 8, "sliding_window": 16},
    "phi3": _GROUPED,
    "gpt2": _GPT2,
    "gpt_neo": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "max_position_embeddings": CONTEXT,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 16,
        "intermediate_size": 48,
        "embed_dropout": 0.0,
        "attention_dropout": 0.0,
        "resid_dropout": 0.0,
        "initializer_range": 0.15,
    },
    "gpt_neox": {**_PLAIN, "hidden_dropout": 0.0, "attention_dropout": 0.0},
    "opt": {
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT,
        "dropout": 0.0,
        "word_embed_proj_dim": 32,
        "init_std": 0.15,
    },
    "bloom": {
        "hidden_size": 32,
        "n_layer": 2,
        "n_head": 4,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.15,
    },
    "qwen3_moe": {**_HEADS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "granite": {**_GROUPED, "logits_scaling": 2.0},
}

MORE: dict[str, dict[str, Any]] = {
    "gpt_bigcode": _GPT2,
    "mixtral": {**_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "olmo2": _GROUPED,
    "smollm3": _GROUPED,
    "gptj": {**_GPT2, "rotary_dim": 4},
    "falcon": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_kv_heads": 2,
        "new_decoder_architecture": True,
        "alibi": False,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.15,
    },
    "biogpt": {**_PLAIN, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "activation_dropout": 0.0},
    "cohere": {**_GROUPED, "logit_scale": 0.5},
}
"""Tried as well, not in the table of fourteen."""


def make_model(family: str, **changes: Any) -> Any:
    """A model with random weights, float32."""
    tokenizer = byte_tokenizer()
    sizes = (FAMILIES | MORE)[family] | changes
    torch.manual_seed(3)
    ids = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**ids, **sizes})).float()
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(7, 256, 9)]
    return model


def write_checkpoint(family: str, folder: Path, **changes: Any) -> Path:
    """The family's checkpoint in `folder`, made where it is not there yet."""
    path = folder / family
    if not path.exists():
        make_model(family, **changes).save_pretrained(path)
        byte_tokenizer().save_pretrained(path)
    return path
