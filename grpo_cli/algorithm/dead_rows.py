"""Rows whose advantage is 0 add nothing to the gradient; leaving them out before the forward pass saves its cost.

Exact only without a KL term and an entropy bonus, and only with the normaliser of the whole batch: losses that
average over the rows or tokens they are given must be scaled by the share that was kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from grpo_cli.algorithm.spread import loss_mask

PER_BATCH = {"dapo", "cispo", "vespo"}  # normalised by the token count of the whole generation batch
PER_ROW = {"grpo", "sapo", "dr_grpo", "luspo"}  # a mean over rows
PER_TOKEN = {"bnpo"}  # a mean over this micro-batch's tokens


def drop_dead_rows(
    inputs: dict[str, Any], loss: str, most: Callable[[int], int] = lambda n: n
) -> tuple[dict[str, Any], float]:
    """The batch without rows of zero advantage, and the factor that restores the loss of the whole batch.

    At least one row stays, so that there is a graph to differentiate; with several processes as many as `most` says
    (the largest count of any), since TRL gathers per-row statistics over all of them.

    Args:
        inputs: one of TRL's micro-batches: tensors whose first axis is B are cut, whatever else stays.
        loss: TRL's name of the loss.
        most: from rows that this process keeps to rows that every process keeps.

    Raises:
        ValueError: no factor makes this loss what it was of all rows.
    """
    alive = inputs["advantages"] != 0
    if alive.dim() > 1:
        alive = alive.any(dim=1)
    n = len(alive)
    keep = most(max(1, int(alive.sum())))
    if keep == n:
        return inputs, 1.0
    # rows of advantage 0 fill up to what all ranks keep: they add nothing but their cost
    alive[torch.nonzero(~alive).flatten()[: keep - int(alive.sum())]] = True
    mask = loss_mask(inputs)
    if loss in PER_BATCH:
        share = 1.0
    elif loss in PER_ROW:
        # a mean over fewer rows is too large by n / kept
        share = int(alive.sum()) / n
    elif loss in PER_TOKEN:
        share = int(mask[alive].sum()) / max(int(mask.sum()), 1)
    else:
        raise ValueError(f"no exact normaliser is known for loss `{loss}`")
    kept = {
        key: value[alive] if torch.is_tensor(value) and value.dim() > 0 and value.shape[0] == n else value
        for key, value in inputs.items()
    }
    return kept, share


def trim(inputs: dict[str, Any]) -> dict[str, Any]:
    """The batch without the columns that are padding in every row of it.

    Two stay: TRL takes a single column for one value a row, and counts rows that are masked.
    """
    width = max(int(inputs["completion_mask"].sum(dim=1).max()), 2)
    full = inputs["completion_ids"].shape[1]
    lead = int((inputs["prompt_mask"].sum(dim=1)).max())
    trimmed = dict(inputs)
    for key, value in inputs.items():
        if key in ("prompt_ids", "prompt_mask"):
            # prompts are padded on the left, completions on the right
            trimmed[key] = value[:, value.shape[1] - lead :]
        elif torch.is_tensor(value) and value.dim() == 2 and value.shape[1] == full:
            trimmed[key] = value[:, :width]
    return trimmed
