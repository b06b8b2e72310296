"""From a row to the token ids that a model goes on from, and the ids that end what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import DataError
from grpo_cli.policy.modes import causal_model

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.data.rows import Row
    from grpo_cli.policy.contract import Tokenizer


def encode(tokenizer: Tokenizer, row: Row, chat: Mapping[str, object] | None = None) -> list[int]:
    """The prompt's token ids: chat template with the options `chat` where the row has messages, plain text otherwise."""
    if row.messages is not None:
        options = {"tools": row.tools, **(chat or {})} if row.tools else chat or {}
        ids = list(_render(tokenizer, row.messages, options))
        if ignored := _ignored(tokenizer, row, options, ids):
            raise DataError(
                f"the model's chat template leaves {ignored} of this row out of the prompt",
                place=row.place,
                hint="take a model whose template renders them, or take them out of the rows",
            )
        return ids
    return list(tokenizer(row.prompt).input_ids)


def _render(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], options: Mapping[str, object]
) -> Sequence[int]:
    return tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False, **options
    )


def _ignored(tokenizer: Tokenizer, row: Row, options: Mapping[str, object], ids: list[int]) -> str:
    """What of the row's tools and tool calls makes no difference to its prompt; empty where all do, or there are none."""
    if row.tools and ids == list(_render(tokenizer, row.messages or (), {**options, "tools": None})):
        return "the `tools`"
    bare = [{k: v for k, v in message.items() if k != "tool_calls"} for message in row.messages or ()]
    if bare != row.messages and ids == list(_render(tokenizer, bare, options)):
        return "the `tool_calls`"
    return ""


def end_tokens(model: nn.Module, tokenizer: Tokenizer | None = None) -> set[int]:
    """Every id that ends a completion: the generation config's, the model config's and the tokenizer's."""
    base: Any = causal_model(model)
    ends: set[int] = set()
    for holder in (getattr(base, "generation_config", None), getattr(base, "config", None), tokenizer):
        token = getattr(holder, "eos_token_id", None)
        ends.update([token] if isinstance(token, int) else token or [])
    return ends
