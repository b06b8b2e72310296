"""Which tokens of a batch are the model's own, and what is said of turns as numbers of tokens.

An episode of many turns is one row in which observations stand between the model's turns. They are attended to, so
`completion_mask` holds them; nothing that is averaged, summed or counted over what the model said may. B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Span = tuple[int, int, float]
"""[start, end) of a row's tokens, and the number that each of them gets."""


def loss_mask(batch: Mapping[str, Any]) -> Tensor:
    """[B, T] 1 where a token counts in the loss: the model generated it, and its row is not left out.

    The only product of masks; `batch` is one of TRL's, in which `tool_mask` is 0 at what an environment said.
    """
    mask: Tensor = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def spread(rows: Sequence[Sequence[Span]], width: int) -> Tensor:
    """[B, width] float64: the number of each span on its tokens, 0 elsewhere; later spans win where they overlap."""
    out_BT = torch.zeros(len(rows), width, dtype=torch.float64)
    for row, spans in enumerate(rows):
        for start, end, value in spans:
            out_BT[row, start:end] = value
    return out_BT
