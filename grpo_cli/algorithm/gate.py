"""The outcome gate: where the outcome tells no sample from another, a group is paid the outcome alone.

A reward is R = T + S: T what the outcome pays, S all that is paid beside it (a format, a length, a penalty). In a group whose
T is equal the only spread is that of S, and dividing by it makes advantages of full size whatever the weight of S. So R is
replaced by T there, before anything is computed of it. The measurement behind it: verl-recipe, issue 125.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from grpo_cli.algorithm.advantage import LEAST, group_advantages


def told_apart(outcomes_PG: Tensor, *, ddof: int = 1, floor: float = LEAST) -> Tensor:
    """(P,) bool of (P, G) outcomes: whether they spread by at least `floor`. NaN is unknown; fewer than two known ones do not."""
    # the one definition of a spread: that of the advantages
    return group_advantages(outcomes_PG, scale="none", ddof=ddof, floor=floor).ne(0).any(dim=1)


def gate(
    outcomes_PG: Tensor, rewards_PG: Tensor, *, ddof: int = 1, floor: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """(P, G) what is paid, and (P,) bool whether the outcomes of a group spread.

    Outcomes count where the reward is known. NaN, no verdict, stays NaN.
    """
    known_PG = outcomes_PG.masked_fill(rewards_PG.isnan(), math.nan)
    alive_P = told_apart(known_PG, ddof=ddof, floor=floor)
    return torch.where(alive_P[:, None], rewards_PG, known_PG), alive_P
