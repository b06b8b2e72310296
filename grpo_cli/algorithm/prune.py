"""Sample many, train on few: which samples of a group are worth a forward and backward pass.

PODS (arXiv 2504.13818) keeps the subset whose rewards vary most and forms advantages within it; CPPO (arXiv 2503.22342)
forms advantages over the whole group and keeps the largest. What is left out takes no part in the loss's mean either.
Saves update time only: worth it where updates, not generation, are the bottleneck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

By = Literal["variance", "advantage"]


def most_varied(rewards: Sequence[float], keep: int) -> list[int]:
    """Places of the `keep` rewards of largest variance: always some lowest and some highest of the sorted ones.

    Samples without a reward come last. Among equally varied splits the one with the most high rewards is taken.
    """
    known = sorted((i for i, r in enumerate(rewards) if not math.isnan(r)), key=lambda i: rewards[i])
    unknown = [i for i, r in enumerate(rewards) if math.isnan(r)]
    keep_known = min(keep, len(known))

    def spread(high: int) -> float:
        chosen = [rewards[i] for i in split(high)]
        mean = math.fsum(chosen) / len(chosen)
        return math.fsum((r - mean) ** 2 for r in chosen)

    def split(high: int) -> list[int]:
        return known[: keep_known - high] + known[len(known) - high :]

    if not keep_known:
        return unknown[:keep]
    spreads = [spread(high) for high in range(keep_known + 1)]
    # splits that differ in the last bits only count as equal, in whatever unit the rewards are
    best = max(high for high, one in enumerate(spreads) if one >= max(spreads) * (1 - 1e-9))
    return sorted(split(best) + unknown[: keep - keep_known])


def largest(advantages: Sequence[float], keep: int) -> list[int]:
    """Places of the `keep` advantages of largest size; the earlier of equals."""
    return sorted(sorted(range(len(advantages)), key=lambda i: (-abs(advantages[i]), i))[:keep])


def kept_mask(values_PG: Tensor, keep: int, by: By) -> Tensor:
    """(P, G) True where a sample stays, by rewards (`variance`) or advantages (`advantage`)."""
    mask = torch.zeros(values_PG.shape, dtype=torch.bool)
    for row, values in enumerate(values_PG.tolist()):
        mask[row, most_varied(values, keep) if by == "variance" else largest(values, keep)] = True
    return mask.to(values_PG.device)
