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
    """Estimates of the KL at each token (Schulman, "Approximating KL divergence"), without any weight of the ratio."""
    apart = logps - ref
    if estimator in ("k1_loss", "k1_reward"):
        return apart
    if estimator == "k2":
        return apart.square() / 2
    return (-apart).exp() + apart - 1


def answer_kl(logps_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B,) k1 of whole answers: the sum of log-ratios over their tokens."""
    return (kl_per_token(logps_BT, ref_BT, "k1_reward") * mask_BT).sum(dim=1)


def token_kl(logps_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor, accelerator: Accelerator) -> float:
    """k3 averaged over all tokens of all ranks: what is shown as `kl`. Every rank has to ask."""
    summed = (kl_per_token(logps_BT, ref_BT, "k3") * mask_BT).sum()
    total_2: Tensor = accelerator.reduce(torch.stack([summed, mask_BT.sum().to(summed)]), reduction="sum")
    return float(total_2[0] / total_2[1].clamp(min=1))
