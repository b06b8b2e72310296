"""Choosing and making an engine. `auto` never fails: what the graph engine cannot drive goes to transformers, and one
line says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.train.rollout.engine import Engine
from grpo_cli.train.rollout.modelseat import causal_model

if TYPE_CHECKING:
    import torch
    from torch import nn

NAMES = ("auto", "graph", "transformers", "vllm")


def make_engine(
    name: str,
    model: nn.Module,
    tokenizer: Any = None,
    *,
    end_ids: Iterable[int] | None = None,
    pad_id: int | None = None,
    max_rows: int | None = None,
    autocast: torch.dtype | None = None,
    say: Callable[[str], None] | None = None,
) -> Engine:
    """The engine `name` for the unwrapped model; end tokens default to the model's and the tokenizer's together."""
    from grpo_cli.train.rollout.plain import TransformersEngine
    from grpo_cli.train.rollout.supports import supports

    if name == "vllm":
        raise SetupError(
            "`vllm` generates inside the trainer, not in this process", hint="set `sample.engine: auto`"
        )
    if name not in NAMES:
        raise RecipeError(f"unknown engine `{name}`", hint=f"one of {', '.join(f'`{n}`' for n in NAMES)}")
    ends = set(end_ids) if end_ids is not None else end_tokens(model, tokenizer)
    if pad_id is None:
        pad_id = getattr(tokenizer, "pad_token_id", None)
    if name != "transformers":
        from grpo_cli.train.rollout.graph import GraphEngine

        reason = supports(model)
        if reason is None:
            options: dict[str, Any] = {} if max_rows is None else {"max_rows": max_rows}
            return GraphEngine(model, ends, autocast=autocast, **options)
        if name == "graph":
            raise SetupError(
                f"the engine `graph` cannot drive this model: {reason}", hint="set `sample.engine: auto`"
            )
        if say:
            say(f"generating with `transformers`, not `graph`: {reason}")
    return TransformersEngine(model, ends, pad_id=pad_id)


def end_tokens(model: nn.Module, tokenizer: Any = None) -> set[int]:
    """Every id that ends a completion: the generation config's, the model config's and the tokenizer's."""
    base: Any = causal_model(model)
    ends: set[int] = set()
    for holder in (getattr(base, "generation_config", None), getattr(base, "config", None), tokenizer):
        token = getattr(holder, "eos_token_id", None)
        ends.update([token] if isinstance(token, int) else token or [])
    return ends
