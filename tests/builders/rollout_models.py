"""Tiny random models of the families the engine is tested on."""

from __future__ import annotations

from typing import Any

import torch
import transformers

# Spinning threads make models this small slower, not faster.
torch.set_num_threads(1)

SMALL = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "pad_token_id": None,
    "eos_token_id": None,
    # Large enough that the next token depends on the context.
    "initializer_range": 0.3,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"tie_word_embeddings": True},
    "Llama-untied-mha": {"tie_word_embeddings": False, "num_key_value_heads": 4},
    "Qwen2": {"tie_word_embeddings": True},
    "Qwen3": {"head_dim": 12},
    "Gemma": {"head_dim": 16, "num_key_value_heads": 1},
    "SmolLM3": {"no_rope_layers": [1, 0], "use_sliding_window": False},
    "Mistral": {"sliding_window": None},
    "Granite": {"logits_scaling": 2.0},
    "Mistral-window": {"sliding_window": 5},
    "Gemma2": {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 3.0},
    "Gemma3": {
        "head_dim": 16,
        "sliding_window": 5,
        "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "GptOss": {
        "head_dim": 8,
        "sliding_window": 5,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    },
}


def tiny(family: str = "Llama", seed: int = 0, **changes: Any) -> Any:
    """A fresh random model."""
    torch.manual_seed(seed)
    kind = family.split("-")[0]
    named = f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config"
    config = getattr(transformers, named)(**{**SMALL, **FAMILIES.get(family, {}), **changes})
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def prompts(count: int, seed: int = 0, shortest: int = 1, longest: int = 12) -> list[list[int]]:
    """Random prompts of differing lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(0, 60, (length,), generator=generator).tolist() for length in lengths]


def plain_logps(model: Any, prompt: list[int], completion: list[int], temperature: float = 1.0) -> torch.Tensor:
    """Log-probs of the completion by one forward pass over the whole sequence."""
    ids = torch.tensor([prompt + completion])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])[:, 0]
