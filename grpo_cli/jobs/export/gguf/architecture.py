"""Which models can be written as GGUF, what llama.cpp calls them and their tensors, and how it wants them laid out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor

from grpo_cli.errors import SetupError
from grpo_cli.policy.contract import CausalLM

NAMES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""`model_type` of transformers -> `general.architecture` of GGUF."""
TURNED = {"llama"}
"""Those whose rotary embedding turns neighbours, not halves, in llama.cpp: rows of queries and keys are put in that order."""
HINT = (
    "export the plain folder (without `--format gguf`) and give it to `convert_hf_to_gguf.py` of llama.cpp, which knows more"
    " models"
)
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@dataclass(frozen=True)
class Architecture:
    """What llama.cpp must know of a model beside its tensors."""

    name: str
    numbers: Mapping[str, int | float]
    """Keys below `name`."""
    rope_factors: Tensor | None
    """[head width / 2] float32, what each frequency is divided by (Llama 3.1's scaling)."""


def architecture_of(model: CausalLM) -> Architecture:
    """What GGUF says of this model.

    Raises:
        SetupError: llama.cpp would compute something else, or this cannot say what it computes.
    """
    config: Any = model.config.get_text_config()
    name = NAMES.get(config.model_type)
    if name is None:
        raise SetupError(f"no GGUF is written of a model of the type `{config.model_type}`", hint=HINT)
    rope = dict(getattr(config, "rope_parameters", None) or {})
    kind = rope.get("rope_type", "default")
    unlike = {
        f"the activation `{config.hidden_act}`": config.hidden_act != "silu",
        "a bias in its MLP": bool(getattr(config, "mlp_bias", False)),
        "a sliding window": bool(getattr(config, "use_sliding_window", False)),
        f"rotary embeddings of the kind `{kind}`": kind not in ("default", "llama3"),
    }
    found = [what for what, holds in unlike.items() if holds]
    if found:
        raise SetupError(f"no GGUF is written of a model with {' and '.join(found)}", hint=HINT)
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    numbers = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "attention.head_count": heads,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", None) or heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": width,
        "rope.freq_base": float(rope.get("rope_theta", 10_000.0)),
    }
    return Architecture(name, numbers, _llama3_factors(rope, width) if kind == "llama3" else None)


def tensors_of(model: CausalLM, made: Architecture) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors as llama.cpp wants them: matrices [out, in] and vectors [width], in the model's own type.

    Raises:
        SetupError: a weight has no place there.
    """
    config: Any = model.config.get_text_config()
    heads = {"self_attn.q_proj": made.numbers["attention.head_count"]}
    heads["self_attn.k_proj"] = made.numbers["attention.head_count_kv"]
    if made.rope_factors is not None:
        yield "rope_freqs.weight", made.rope_factors
    for own, weight in model.state_dict().items():
        place, _, part = own.rpartition(".")
        if place == "lm_head" and config.tie_word_embeddings:
            continue
        if place in WHOLE:
            yield f"{WHOLE[place]}.{part}", weight
            continue
        parts = place.split(".", 3)
        inner = parts[3] if len(parts) == 4 and place.startswith("model.layers.") else ""
        if inner not in LAYER:
            raise SetupError(f"no GGUF is written of a model with a weight `{own}`", hint=HINT)
        if made.name in TURNED and inner in heads:
            weight = neighbours(weight, int(heads[inner]))
        yield f"blk.{parts[2]}.{LAYER[inner]}.{part}", weight


def neighbours(weight: Tensor, heads: int) -> Tensor:
    """Rows [heads x width, ...] of each head, whose halves turn together, in the order in which neighbours do."""
    width = weight.shape[0] // heads
    halves = weight.reshape(heads, 2, width // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


def _llama3_factors(rope: Mapping[str, Any], width: int) -> Tensor:
    """What Llama 3.1 divides each frequency by: nothing where a turn is short, `factor` where it is longer than the old
    context, and between the two by how long it is (`_compute_llama3_parameters` of transformers)."""
    frequencies = 1.0 / float(rope["rope_theta"]) ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    factor, old = float(rope["factor"]), float(rope["original_max_position_embeddings"])
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    turns = old * frequencies / (2 * pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).float()
