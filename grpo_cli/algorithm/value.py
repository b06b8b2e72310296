"""The critic's loss, and the unit that it is in. B rows, T completion tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from grpo_cli.algorithm.gae import Moments

SHARE = 0.1
"""What a batch adds to the averages of the unit."""
LEAST_STD = 1e-6
"""Returns that spread by less are not blown up."""


@dataclass(frozen=True)
class ReturnUnit:
    """What a critic counts in: x = (return - mean) / std, both of them exponential averages over batches (as in PopArt, van
    Hasselt et al. 2016, arXiv 1602.07714). A head that says x stands for the value mean + std x."""

    mean: float = 0.0
    std: float = 1.0
    batches: int = 0
    """How many have been averaged; the first sets both."""

    def after(self, returns: Moments) -> ReturnUnit:
        """With the returns of a further batch, of all ranks; none of that differ say nothing of their unit."""
        if not returns.differ:
            return self
        share = SHARE if self.batches else 1.0
        mean = self.mean + share * (returns.mean - self.mean)
        std = self.std + share * (returns.std - self.std)
        return ReturnUnit(mean, max(std, LEAST_STD), self.batches + 1)

    def of(self, values: Tensor) -> Tensor:
        """Float64 values as float32 numbers of this unit; the shape stays."""
        return ((values.double() - self.mean) / self.std).float()

    def back(self, x: Tensor) -> Tensor:
        """Numbers of this unit as float64 values; the shape stays."""
        return self.mean + self.std * x.double()


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
