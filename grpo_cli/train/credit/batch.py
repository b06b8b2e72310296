"""What the samples of a batch are worth, put beside their tokens as TRL's loss reads it."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import gather

from grpo_cli.algorithm.credit import Credit
from grpo_cli.algorithm.spread import loss_mask


def put_credit(out: dict[str, Any], credit: Credit, places: range, *, prunes: bool) -> dict[str, Any]:
    """This rank's batch, whose samples stand at `places` of the whole, with advantages, (B,) or (B, T), and those places.

    `prunes`: samples that are left out do not count in the normaliser either; every rank has to ask.
    """
    own, mask = slice(places.start, places.stop), loss_mask(out)
    # TRL has made its own of the rewards. Ours are float64 up to here: the loss multiplies them by float32
    out["advantages"] = credit.rows(own, mask.shape[1]).to(mask.device, torch.float32)
    if prunes:
        counted = mask.sum(dim=1) * credit.kept_PG.flatten()[own].to(mask.device)
        out["num_items_in_batch"] = gather(counted.sum()).sum()
    out["sample"] = torch.arange(places.start, places.stop, device=mask.device)
    return out
