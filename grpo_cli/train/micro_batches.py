"""Rows of like length share a micro-batch: each is as wide as its longest row, and the rest of a short row is padding
that costs as much as tokens. TRL has shuffled the batch by then; which rows make up an optimizer step stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch

from grpo_cli.algorithm.dead_rows import PER_TOKEN

Rows = dict[str, Any]


def may_sort(loss: str, extras: list[str]) -> bool:
    """Whether the loss of an optimizer step is the same however its rows are dealt out to micro-batches: not where a
    micro-batch has a mean or a quantile over its own tokens; `extras` are TRL fields that have one."""
    return loss not in PER_TOKEN and not extras


def by_length(batches: list[Rows], window: int) -> list[Rows]:
    """The same rows in as many micro-batches of the same size, longest first within every `window` of them."""
    return [
        batch
        for start in range(0, len(batches), window)
        for batch in _sorted(batches[start : start + window])
    ]


def _sorted(batches: list[Rows]) -> list[Rows]:
    masks = [batch["completion_mask"] for batch in batches]
    lengths = torch.cat([mask.sum(dim=1) for mask in masks])
    order = torch.argsort(lengths, descending=True, stable=True)
    sizes = [len(mask) for mask in masks]
    dealt: list[Rows] = [dict(batch) for batch in batches]
    for name, value in batches[0].items():
        if torch.is_tensor(value) and value.dim() > 0:
            whole = torch.cat([batch[name] for batch in batches])[order]
            parts: Any = torch.split(whole, sizes)
        elif isinstance(value, list):
            flat = [item for batch in batches for item in batch[name]]
            spread = iter([flat[i] for i in order.tolist()])
            parts = [[next(spread) for _ in range(size)] for size in sizes]
        else:
            continue
        for batch, part in zip(dealt, parts, strict=True):
            batch[name] = part
    return dealt
