"""Models made on the spot: `builtin:tiny`, a byte-level Llama of 0.36 M parameters with random weights.

It goes through the code a hub checkpoint goes through (chat template, save, load). Without a warm-up it knows nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
WHOLE = [
    "\\boxed{",
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
]  # one token each: they carry the structure

CHAT_TEMPLATE = (
    "{%- for m in messages -%}<|{{ m['role'] }}|>{{ m['content'] }}"
    "{%- if m['role'] == 'assistant' -%}<|end|>{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes, five role tokens and five structural ones (266 ids): any text encodes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(SPECIAL)
    inner.add_tokens([AddedToken(text, normalized=False) for text in WHOLE])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        model_max_length=512,
    )


def tiny_llama(tokenizer: Any, seed: int) -> Any:
    """Three layers of width 96, tied embeddings, float32, seeded."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=3,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model
