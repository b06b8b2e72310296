"""From a row to the token ids that a model goes on from, and the ids that end what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.data.rows import Row


def encode(tokenizer: Any, row: Row, chat: Mapping[str, Any] | None = None) -> list[int]:
    """The prompt's token ids: chat template with the options `chat` where the row has messages, plain text otherwise."""
    if row.messages is not None:
        ids = tokenizer.apply_chat_template(
            row.messages, add_generation_prompt=True, tokenize=True, return_dict=False, **(chat or {})
        )
        return list(ids)
    return list(tokenizer(row.prompt).input_ids)


def end_tokens(model: nn.Module, tokenizer: Any = None) -> set[int]:
    """Every id that ends a completion: the generation config's, the model config's and the tokenizer's."""
    base: Any = causal_model(model)
    ends: set[int] = set()
    for holder in (getattr(base, "generation_config", None), getattr(base, "config", None), tokenizer):
        token = getattr(holder, "eos_token_id", None)
        ends.update([token] if isinstance(token, int) else token or [])
    return ends
