"""The sizes, chat template and tokenizer of `builtin:tiny`, without torch. `policy/model.py` builds the model."""

from __future__ import annotations

from typing import Any

SPECIAL = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
WHOLE = ["\\boxed{", "<think>", "</think>", "<answer>", "</answer>"]  # one token each: they carry the structure

CHAT_TEMPLATE = (
    "{%- for m in messages -%}<|{{ m['role'] }}|>{{ m['content'] }}"
    "{%- if m['role'] == 'assistant' -%}<|end|>{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)

SIZES: dict[str, Any] = {
    # every byte is a token: any text encodes, and no merges have to be learned or shipped
    "vocab_size": 256 + len(SPECIAL) + len(WHOLE),
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


TINY_VISION = "builtin:tiny-vision"
GRIDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
"""Types of models whose images are patches with a grid, as Qwen2-VL's."""
SEES = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
VISION_TEMPLATE = (
    "{%- for m in messages -%}<|{{ m['role'] }}|>"
    "{%- if m['content'] is string -%}{{ m['content'] }}{%- else -%}{%- for part in m['content'] -%}"
    "{%- if part['type'] == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>{%- else -%}{{ part['text'] }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{%- if m['role'] == 'assistant' -%}<|end|>{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
PATCH, MERGE = 8, 2
LEAST_PIXELS, MOST_PIXELS = 16 * 16, 128 * 128
VISION: dict[str, Any] = {
    "text_config": {
        "vocab_size": SIZES["vocab_size"] + len(SEES),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        # the three axes of a position share half of a head's 16 numbers
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
    },
    "vision_config": {
        "depth": 1,
        "embed_dim": 64,
        "hidden_size": 64,
        "num_heads": 4,
        "mlp_ratio": 2,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
    },
    "tie_word_embeddings": True,
}
"""The configuration of `builtin:tiny-vision`, a Qwen2-VL; an image of 32 x 32 pixels is 16 patches and 4 tokens."""


def sizes(context: int | None = None) -> dict[str, Any]:
    """`SIZES`, with another context where one is given."""
    return SIZES if context is None else SIZES | {"max_position_embeddings": context}


def byte_level(*, sees: bool = False) -> Any:
    """256 bytes, five role tokens and five structural ones (266 ids): any text encodes. Four more where the model `sees`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    # special ones are dropped by decoding; the structural ones are text that verifiers read
    inner.add_special_tokens(SPECIAL)
    inner.add_tokens([AddedToken(text, normalized=False) for text in WHOLE])
    if sees:
        inner.add_special_tokens(SEES)
    return inner
