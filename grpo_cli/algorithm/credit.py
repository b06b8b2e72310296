"""From the rewards of a batch to what its loss is weighted with, and the one definition of a group that teaches something.

A group has *signal* when some advantage of it is not 0. Every method below decides that by the group alone, whatever
batch it stands in, so that a group may be asked before its batch is complete. P prompts, G samples, K parts of a reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grpo_cli.algorithm.advantage import group_advantages, leave_one_out, normalise_then_sum
from grpo_cli.algorithm.prune import kept_mask

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Train


@dataclass(frozen=True)
class Credit:
    """What each sample of a batch is worth to the update.

    `A_PG` (P, G) advantages, or (P, G, T) where tokens differ; `kept_PG` (P, G) bool, False where pruning leaves a
    sample out; `signal_P` (P,) bool, of the judged rewards: a KL taken off them moves every group and says nothing.
    """

    A_PG: Tensor
    kept_PG: Tensor
    signal_P: Tensor


def credit(
    train: Train,
    rewards_PG: Tensor,
    parts_PGK: Tensor | None = None,
    weights_K: Tensor | None = None,
    penalty_PG: Tensor | None = None,
) -> Credit:
    """Advantages by a recipe's `train` section, of groups of one size.

    Args:
        train: baseline, scale, floor, pruning and how parts are combined.
        rewards_PG: (P, G) float; NaN where there is no verdict: out of the baseline, advantage 0.
        parts_PGK: (P, G, K) scores behind the rewards and
        weights_K: (K,) their weights; used with `reward_combine: normalise_then_sum` only.
        penalty_PG: (P, G) what a KL takes off each reward.
    """
    A_PG, kept_PG = _advantages(train, rewards_PG, parts_PGK, weights_K)
    signal_P = A_PG.ne(0).flatten(1).any(dim=1)
    if penalty_PG is not None:
        A_PG, kept_PG = _advantages(train, rewards_PG - penalty_PG, parts_PGK, weights_K)
        if train.scale == "group" or (train.scale == "batch" and not signal_P.any()):
            # the only spread would be the penalty's own: divided by itself it is as large at any beta
            A_PG = torch.where(signal_P[:, None], A_PG, 0.0)
    return Credit(A_PG, kept_PG, signal_P)


def _advantages(
    train: Train, rewards_PG: Tensor, parts_PGK: Tensor | None, weights_K: Tensor | None
) -> tuple[Tensor, Tensor]:
    floor, ddof, prune = train.std_floor, train.std_ddof, train.prune
    kept_PG = torch.ones(rewards_PG.shape, dtype=torch.bool, device=rewards_PG.device)
    if prune is not None and prune.by == "variance":
        kept_PG = kept_mask(rewards_PG, prune.keep, "variance")
        rewards_PG = rewards_PG.masked_fill(~kept_PG, math.nan)
    if train.reward_combine == "normalise_then_sum":
        assert parts_PGK is not None and weights_K is not None
        A_PG = normalise_then_sum(parts_PGK, weights_K, ddof=ddof, floor=floor)
    elif train.baseline == "leave_one_out":
        A_PG = leave_one_out(rewards_PG, floor=floor)
    else:
        A_PG = group_advantages(rewards_PG, scale=train.scale, ddof=ddof, floor=floor)
    if prune is not None and prune.by == "advantage":
        kept_PG = kept_mask(A_PG, prune.keep, "advantage")
        A_PG = A_PG * kept_PG
    return A_PG, kept_PG
