"""Position ids behind left padding. Models with relative positions do not need them. A model that adds position
embeddings (GPT-2, GPT-Neo, BigCode, BioGPT) counts the padding as positions, unless it gets position ids.

B rows, S tokens of a row, padding among them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import SetupError
from grpo_cli.policy.modes import causal_model, evaluating

if TYPE_CHECKING:
    from torch import Tensor, nn

EXACT, HALF = 1e-3, 0.2
"""Largest relative difference at which logits count as equal: in float32, and in fewer bits."""

LEAD = 5
"""Padding in front of the row that is tried."""


def positions_of(mask_BS: Tensor) -> Tensor:
    """(B, S) position ids from a mask that is 0 on padding; padding gets the position of its row's first token."""
    return (mask_BS.long().cumsum(dim=-1) - 1).clamp(min=0)


@contextmanager
def positions_from_mask(model: nn.Module) -> Iterator[None]:
    """Inside, a forward pass that gets a mask but no positions computes positions from the mask."""

    # a hook, because transformers and TRL make the call and offer no way to pass positions
    def add(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        mask = named.get("attention_mask")
        if mask is None or named.get("position_ids") is not None:
            return None
        return inputs, {**named, "position_ids": positions_of(mask)}

    handle = causal_model(model).register_forward_pre_hook(add, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def needs_positions(model: nn.Module) -> bool:
    """Whether left-padded rows need position ids as an input. One row is computed without and with padding, and
    compared.

    A model that needs none gets none, so its results stay the same to the last bit.

    Raises:
        SetupError: the padding changes the logits of a row, whatever positions are given.
    """
    import torch

    base: Any = causal_model(model)
    weight = base.get_input_embeddings().weight
    vocabulary = int(base.config.get_text_config().vocab_size)
    # three tokens from the middle of the vocabulary: special ones stand at its ends
    row = torch.tensor([[vocabulary // 7, vocabulary // 3, vocabulary // 2]], device=weight.device)
    ids = torch.cat([row.new_zeros(1, LEAD), row], dim=1)
    mask = torch.cat([row.new_zeros(1, LEAD), torch.ones_like(row)], dim=1)
    bound = EXACT if weight.dtype == torch.float32 else HALF

    def logits(**named: Tensor) -> Tensor:
        found: Tensor = base(**named, use_cache=False).logits[0, -row.shape[1] :].float()
        return found

    with evaluating(base):
        alone = logits(input_ids=row)
        behind: Mapping[str, Tensor] = {"input_ids": ids, "attention_mask": mask}
        without = _apart(logits(**behind), alone)
        # relative positions: the same logits with positions and without
        if without <= bound:
            return False
        placed = without
        if "position_ids" in inspect.signature(base.forward).parameters:
            placed = _apart(logits(**behind, position_ids=positions_of(mask)), alone)
    # layers that mix in masked tokens (a convolution, a state space) differ whatever they are given
    if placed > bound:
        raise SetupError(
            f"`{type(base).__name__}` says something else of a row behind padding (by {placed:.0%}): answers of unequal"
            " length cannot be trained on together, their gradients would be wrong",
            hint="train a model whose layers leave masked tokens out",
        )
    return True


def _apart(got: Tensor, want: Tensor) -> float:
    return float((got - want).norm() / want.norm().clamp(min=1e-12))
