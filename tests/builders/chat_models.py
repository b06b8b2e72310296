"""Tiny models whose tokenizers and chat templates are in the manner of known families, all written here: nothing is loaded
from anywhere. Each family has what is peculiar to it: who opens the thinking, who refuses a system turn, who writes the
first token, which tags are special tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHATML = (
    "{%- if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{%- endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{%- for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{%- endfor %}<|im_end|>\n"
    "{% endfor %}"
)
QWEN3 = (
    CHATML + "{%- if add_generation_prompt %}<|im_start|>assistant\n"
    "{%- if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
SMOLLM = (
    "{%- if messages[0].role != 'system' %}<|im_start|>system\nYou are brief.<|im_end|>\n{% endif %}"
    "{%- for m in messages %}<|im_start|>{{ m['role'] + '\n' + m['content'] }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{- bos_token }}{%- for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content']"
    " | trim + '<|eot_id|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% elif m['role'] == 'assistant' %}{% generation %}{{ ' ' + m['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
DEEPSEEK_R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}"
    "{% elif m['role'] == 'assistant' %}{{ '<｜Assistant｜>' + m['content'].split('</think>')[-1] + eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """A manner of tokenizer: its template, named tokens, special tokens beside them, and whether it puts a first token."""

    template: str | None
    named: dict[str, str]
    special: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    first: str | None = None
    sizes: dict[str, Any] = field(default_factory=dict)


FAMILIES = {
    "qwen3": Family(
        QWEN3,
        {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        ("<|im_start|>",),
        ("<think>", "</think>", "<tool_call>", "</tool_call>"),
    ),
    "llama3": Family(
        LLAMA3,
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
        ("<|start_header_id|>", "<|end_header_id|>"),
        first="<|begin_of_text|>",
    ),
    "gemma": Family(
        GEMMA,
        {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"},
        ("<start_of_turn>", "<end_of_turn>"),
        first="<bos>",
    ),
    "mistral": Family(
        MISTRAL, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, ("[INST]", "[/INST]"), first="<s>"
    ),
    "deepseek_r1": Family(
        DEEPSEEK_R1,
        {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
        ("<｜User｜>", "<｜Assistant｜>"),
        ("<think>", "</think>"),
        first="<｜begin▁of▁sentence｜>",
    ),
    "smollm": Family(SMOLLM, {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}),
    "base": Family(None, {"eos_token": "<|endoftext|>"}),
    "tags": Family(
        QWEN3,
        {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        ("<|im_start|>", "<think>", "</think>", "<answer>", "</answer>"),
    ),
}


def make_tokenizer(family: str, **named: Any) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer in the manner of a family; `named` stands over its own named arguments."""
    kind = FAMILIES[family]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(dict.fromkeys([*kind.named.values(), *kind.special])))
    inner.add_tokens([AddedToken(text, normalized=False) for text in kind.plain])
    if kind.first is not None:
        inner.post_processor = processors.TemplateProcessing(
            single=f"{kind.first} $A", special_tokens=[(kind.first, inner.token_to_id(kind.first))]
        )
    return PreTrainedTokenizerFast(tokenizer_object=inner, **{"chat_template": kind.template, **kind.named, **named})


def make_model(folder: Path, family: str = "qwen3", *, seed: int = 0, **config: Any) -> Path:
    """A saved Llama of two layers with random weights and the family's tokenizer."""
    import torch

    tokenizer = make_tokenizer(family)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    more = {"num_key_value_heads": 1, "max_position_embeddings": 256, "tie_word_embeddings": True}
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    model = LlamaForCausalLM(
        LlamaConfig(**{"vocab_size": len(tokenizer), "pad_token_id": pad, **ids, **sizes, **more, **config})
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
