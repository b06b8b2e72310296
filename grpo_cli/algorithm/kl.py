"""Estimates of the KL divergence between the policy and the model a run started from, from the log-probs of samples.

`k1_loss` has an expected gradient of zero (E[grad log p] = 0), so as a loss it anchors nothing; `k2` and `k3_corrected`
have the gradient of KL(policy || reference), plain `k3` that of KL(reference || policy). `k1_reward` is no loss term at
all: it is taken off the rewards before the advantages are formed. B rows, T completion tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from accelerate import Accelerator

    from grpo_cli.recipe.sections.recipe import Estimator


def kl_per_token(logps: Tensor, ref: Tensor, estimator: Estimator) -> Tensor:
    """Estimates of KL(policy || reference) at each token, of one sample each and without any weight of the ratio.

    With r = reference / policy: k1 is -log r (unbiased, of either sign), k2 (log r)^2 / 2, k3 r - 1 - log r (unbiased,
    never negative); J. Schulman, "Approximating KL divergence", 2020.

    Args:
        logps: log-probs of the sampled tokens under the policy, [B, T].
        ref: the same tokens under the reference, [B, T].
        estimator: a name of the recipe's `train.kl.estimator`; `k3_corrected` is k3 here, its weight is the loss's.

    Returns:
        [B, T] nats, with the gradient of `logps`; padding is not masked.
    """
    # -log r
    apart = logps - ref
    if estimator in ("k1_loss", "k1_reward"):
        return apart
    if estimator == "k2":
        return apart.square() / 2
    return (-apart).exp() + apart - 1


def answer_kl(logps_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B,) k1 of whole answers in nats: the sum of log-ratios over the tokens that `mask_BT` counts."""
    return (kl_per_token(logps_BT, ref_BT, "k1_reward") * mask_BT).sum(dim=1)


def token_kl(logps_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor, accelerator: Accelerator) -> float:
    """k3 in nats, averaged over all tokens of all ranks (long answers weigh more): what is shown as `kl`.

    Every rank has to ask, for it is summed over all; 0 where no token counts.
    """
    summed = (kl_per_token(logps_BT, ref_BT, "k3") * mask_BT).sum()
    total_2: Tensor = accelerator.reduce(torch.stack([summed, mask_BT.sum().to(summed)]), reduction="sum")
    return float(total_2[0] / total_2[1].clamp(min=1))
