"""Estimates of the KL divergence between the policy and the model a run started from, from the log-probs of samples.

`k1_loss` has an expected gradient of zero (E[grad log p] = 0), so as a loss it anchors nothing; `k2` and `k3_corrected`
have the gradient of KL(policy || reference), plain `k3` that of KL(reference || policy). `k1_reward` is no loss term at
all: it is taken off the rewards before the advantages are formed. B rows, T completion tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
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


def token_kl(logps_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor) -> float:
    """k3 averaged over all tokens: what is shown as `kl`."""
    total = (kl_per_token(logps_BT, ref_BT, "k3") * mask_BT).sum() / mask_BT.sum().clamp(min=1)
    return float(total)
