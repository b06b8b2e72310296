"""The policy: one model with everything needed to generate from it and to score with it. Every job gets this object.

How this works. `Policy.of` takes the ends of a completion from model and tokenizer, and the type of forward passes from device and
size. Rows become token ids by its chat template, or by `vision` where they show images; `without` bans tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.ban import ban, banned_ids
from grpo_cli.policy.cpu_bf16 import cpu_bf16_pays
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.tokens import decode, encode, end_tokens, prompts_of, special_tokens, tag_tokens

if TYPE_CHECKING:
    import torch

    from grpo_cli.data.rows import Row
    from grpo_cli.policy.contract import CausalLM, Tokenizer
    from grpo_cli.policy.prompts.prompt import Prompts
    from grpo_cli.policy.vision import Vision

BIG = 50_000_000
"""Smallest number of parameters for bfloat16 autocast on a CPU with fast bfloat16 (1.3 times faster on
SmolLM2-135M)."""


@dataclass(frozen=True)
class Policy:
    """A model on its device, with its tokenizer.

    `autocast` is the dtype of forward passes, in training and generation alike (None: the weights' own dtype). Any of
    `end_ids` ends a completion. The chat template gets `chat` in addition to the messages; tokens in `banned` have
    probability 0 in every distribution of the model. `is_pretrained` is False for random weights.
    """

    model: CausalLM
    tokenizer: Tokenizer
    device: torch.device
    autocast: torch.dtype | None
    end_ids: frozenset[int]
    is_pretrained: bool = True
    chat: Mapping[str, Any] = field(default_factory=dict)
    banned: frozenset[int] = frozenset()
    vision: Vision | None = None
    """What it reads images with; None where it reads text alone."""

    @classmethod
    def of(
        cls,
        model: CausalLM,
        tokenizer: Tokenizer,
        *,
        dtype: str = "auto",
        is_pretrained: bool = True,
        vision: Vision | None = None,
    ) -> Policy:
        """A policy from a loaded model; `dtype` as in `model.dtype` of a recipe."""
        device = next(model.parameters()).device
        autocast = compute_dtype(dtype, device, sum(p.numel() for p in model.parameters()))
        ends = frozenset(end_tokens(model, tokenizer))
        return cls(model, tokenizer, device, autocast, ends, is_pretrained, vision=vision)

    @property
    def context(self) -> int | None:
        """Most tokens of prompt and completion together; None where the model sets no limit."""
        base: Any = causal_model(self.model)
        return getattr(base.config.get_text_config(), "max_position_embeddings", None)

    @property
    def vocabulary(self) -> int:
        """How many token ids the model has embeddings of."""
        return int(causal_model(self.model).get_input_embeddings().num_embeddings)

    def without(self, texts: Sequence[str], *, can_stop: bool) -> Policy:
        """This policy with the tokens of these texts banned; `can_stop`: a sample can end without an end token.

        Raises:
            RecipeError: a text is no single token, or nothing would be left to end a sample.
            SetupError: the model's head does not take it.
        """
        import numpy as np

        found = banned_ids(
            texts,
            lambda text: self.tokenizer(text, add_special_tokens=False).input_ids,
            lambda token: self.tokenizer.batch_decode([np.array([token])], skip_special_tokens=False)[0],
            self.end_ids,
            can_stop=can_stop,
        )
        ban(self.model, sorted(found))
        return replace(self, banned=frozenset(found))

    def encode(self, row: Row) -> list[int]:
        """The token ids of a row's prompt."""
        if self.vision is not None and row.images:
            return self.vision.encode(self.prompts.text(row), row.images)
        return encode(self.tokenizer, row, self.chat)

    def encode_answer(self, text: str, stop: Sequence[str] = ()) -> list[int]:
        """The token ids of a whole answer. An end token is appended unless one of the texts `stop` ends the answer."""
        ids = [*self.tokenizer(text, add_special_tokens=False).input_ids]
        # a sample that a stop text ended has no end token either: a demonstration must look like a sample
        if any(text.endswith(one) for one in stop):
            return ids
        # without a preferred end token take the lowest, so that it is always the same one
        return [*ids, self.tokenizer.eos_token_id or min(self.end_ids)]

    @cached_property
    def prompts(self) -> Prompts:
        """How rows become prompts."""
        return prompts_of(self.tokenizer, self.chat)

    def assistant_prefix(self, row: Row) -> str:
        """The part of the assistant's turn that the row's prompt already contains."""
        return self.prompts.assistant_prefix(row)

    def decode(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        """Texts as verifiers read them: special tokens are removed, except for tags (`<think>`). Marks of thinking that only
        the chat template shows become these."""
        # found once: the tags of a tokenizer do not change, and a run decodes every sample
        texts, marks = decode(self.tokenizer, token_ids, self._tags), self.prompts.thinking_marks
        return [marks.spelt(text) for text in texts] if marks.begin else texts

    @cached_property
    def _tags(self) -> set[int]:
        return tag_tokens(self.tokenizer, self.prompts.thinking_marks)

    def decode_whole(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        """Texts with all special tokens, with which some models write calls of tools."""
        return decode(self.tokenizer, token_ids, set(special_tokens(self.tokenizer)))


def compute_dtype(dtype: str, device: torch.device, parameters: int) -> torch.dtype | None:
    """Half precision where forward passes run under an autocast to it, else None; `dtype` as in `model.dtype` of a recipe."""
    import torch

    if dtype != "auto":
        return torch.bfloat16 if dtype == "bfloat16" else None
    # small models are limited by memory and kernel launches, not by products: casting only adds work
    pays = device.type == "cuda" or (parameters >= BIG and cpu_bf16_pays())
    return half_precision(device) if pays else None


def half_precision(device: torch.device) -> torch.dtype:
    """bfloat16; float16 on a CUDA device that has no products in it (capability below 8, such as a T4), where torch emulates them."""
    import torch

    has_bf16 = device.type != "cuda" or torch.cuda.get_device_capability(device)[0] >= 8
    return torch.bfloat16 if has_bf16 else torch.float16


def loaded_dtype(dtype: str, device: torch.device, *, frozen: bool) -> torch.dtype:
    """What the weights of a model lie in on a device; `dtype` as in `model.dtype`, `frozen`: they are only read."""
    import torch

    if dtype != "auto":
        named: torch.dtype = getattr(torch, dtype)
        return named
    # full fine-tuning keeps float32 master weights: bfloat16 swallows updates of relative size below 1/256. Weights that are
    # only read (measuring, or frozen under an adapter) lose nothing; a CPU mostly computes in float32
    return half_precision(device) if frozen and device.type != "cpu" else torch.float32
