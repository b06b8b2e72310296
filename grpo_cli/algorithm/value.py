"""The critic's loss. B rows, T completion tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ValueLoss(NamedTuple):
    """(B, T) the loss of each token, 0 where the mask is; (B, T) whether the clipped value is the one that counts."""

    loss_BT: Tensor
    clipped_BT: Tensor


def value_loss(
    values_BT: Tensor, old_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor, clip: float
) -> ValueLoss:
    """.5 max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2) of each token (PPO's value clipping, as in OpenAI's baselines).

    Where the clipped value is further off the value has left its bounds for the better, and has no gradient.
    """
    near_BT = torch.clamp(values_BT, old_BT - clip, old_BT + clip)
    plain_BT, bounded_BT = (values_BT - returns_BT).square(), (near_BT - returns_BT).square()
    mask_BT = mask_BT.to(values_BT.dtype)
    return ValueLoss(
        0.5 * torch.maximum(plain_BT, bounded_BT) * mask_BT, (bounded_BT > plain_BT) & mask_BT.bool()
    )
