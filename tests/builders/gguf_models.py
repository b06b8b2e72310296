"""Small models of the kinds that GGUF is written of, weights wide enough that a greedy continuation wanders, and byte-level BPE
tokenizers that cut texts in each way llama.cpp has a name for."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen3Config

from grpo_cli.jobs.export.gguf import PATTERNS
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.tiny import CHAT_TEMPLATE

TEXTS = [
    "It's 2010, and they'll have 12345 apples; we've none.",
    "  Two spaces, a\ttab,\n\n  a line.   And CAPS don't matter: I'D GO",
    "Zoë naïvely paid 3.14 € for 東京の地図 — twice!",
    "def f(x):\n    return x**2 + 1  # a comment\n",
]
"""Texts in which the ways to cut differ."""
REGEX = {name: pattern for pattern, name in PATTERNS.items()}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}


def cut(pre: str) -> Any:
    """The pre-tokenizer that llama.cpp calls `pre`."""
    if pre == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        last = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), last])
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(REGEX[pre]), "isolated"), last])


def tokenizer(pre: str) -> PreTrainedTokenizerFast:
    """A BPE tokenizer of 420 tokens, learned from `TEXTS`, with special ones and one that is not."""
    inner = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    inner.pre_tokenizer, inner.decoder = cut(pre), decoders.ByteLevel()
    learns = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    inner.train_from_iterator(TEXTS * 4, learns)
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<|pad|>", eos_token="<|end|>", chat_template=CHAT_TEMPLATE
    )
    made.add_special_tokens({"additional_special_tokens": ["<|system|>", "<|user|>", "<|assistant|>"]})
    made.add_tokens(["<think>"])
    return made


def policy(kind: str, words: PreTrainedTokenizerFast, *, seed: int = 0, **more: Any) -> Policy:
    """A random model of a `model_type`, its embeddings a few more than the tokenizer has tokens."""
    config = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}[kind]
    if kind == "qwen3":
        more.setdefault("head_dim", 32)
    torch.manual_seed(seed)
    ids = {"pad_token_id": words.pad_token_id, "eos_token_id": words.eos_token_id, "bos_token_id": None}
    size = -(-len(words) // 64) * 64
    model = AutoModelForCausalLM.from_config(config(**(SMALL | {"vocab_size": size} | ids | more)))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("bias", "norm.weight")):  # else they are all 0, or all 1
                weight.add_(torch.randn_like(weight), alpha=0.2)
    return Policy.of(model.eval(), words)
