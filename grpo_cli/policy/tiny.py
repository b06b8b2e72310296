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


def sizes(context: int | None = None) -> dict[str, Any]:
    """`SIZES`, with another context where one is given."""
    return SIZES if context is None else SIZES | {"max_position_embeddings": context}


def byte_level() -> Any:
    """256 bytes, five role tokens and five structural ones (266 ids): any text encodes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    # special ones are dropped by decoding; the structural ones are text that verifiers read
    inner.add_special_tokens(SPECIAL)
    inner.add_tokens([AddedToken(text, normalized=False) for text in WHOLE])
    return inner
