"""Group-relative advantages: how much better a sample is than the others drawn for its prompt.

How this works. Rewards are (P, G): P prompts, G samples each; NaN is a sample without a verdict. A step goes down this file:

1. `gate` decides what a group is paid. A group with equal outcomes is paid only the outcomes.
2. `kept_mask` may leave samples out of the loss (pruning; with `by: advantage` it runs after 3).
3. `group_advantages` (GRPO, Dr.GRPO, REINFORCE++-baseline, MaxRL), `leave_one_out` (RLOO), `length_weighted` (OPO), `best_of_k` (pass@k),
   `normalise_then_sum` (GDPO) or `normalised_apart` (HRAS) makes (P, G) advantages; `token_baseline` makes one of each token.

`algorithm/credit.py` calls 2 and 3 by a recipe, `train/credit.py` calls 1 on judged groups.

With r_i the rewards of one group, n those with a verdict, m and s their mean and standard deviation:

    GRPO                   A_i = (r_i - m) / s          DeepSeekMath, arXiv 2402.03300, section 4.1.2
    Dr.GRPO                A_i = r_i - m                arXiv 2503.20783
    REINFORCE++-baseline   A_i = (r_i - m) / s_batch    arXiv 2501.03262
    MaxRL                  A_i = (r_i - m) / m          arXiv 2602.02710
    RLOO                   A_i = (r_i - m) n / (n - 1)  arXiv 2402.14740
    OPO                    A_i = r_i - sum_j len_j r_j / sum_j len_j   arXiv 2505.23585
    pass@k                 A_i = (mean over subsets with i of their best - R) / S, R and S mean and std of the best of k samples
    GDPO                   A_i = sum_k w_k (r_ik - m_k) / s_k, scaled over the batch
    HRAS                   A_i = sum_k w_k (r_ik - m_k) / s_k   arXiv 2606.14691

Edge cases, the same in every function: a sample without a verdict is not in the baseline and gets advantage 0. A group
whose
spread is below `floor` gets exactly 0: eight equal rewards of 0.3 have a float32 std of 3e-8, and dividing by it would invent
a signal. This test reads the group alone, never the rest of the batch. So whether a group has signal is known before
its batch is complete.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Scale = Literal["group", "batch", "mean", "none"]

LEAST = 1e-12
"""The lowest floor: it keeps a spread of 0 from being a divisor."""

ROUNDING = 2 * torch.finfo(torch.float64).eps
"""The floor is at least this share of the largest reward: sums that should be equal differ by rounding."""


def group_advantages(
    rewards_PG: Tensor, *, scale: Scale = "group", ddof: int = 1, floor: float = 1e-6, weights_PG: Tensor | None = None
) -> Tensor:
    """(P, G) rewards to (P, G) advantages: reward minus the group's mean, over the std of group or batch.

    `scale="group"` is GRPO (DeepSeekMath, arXiv 2402.03300), `"batch"` REINFORCE++-baseline, `"none"` Dr.GRPO
    (arXiv 2503.20783), `"mean"` MaxRL (arXiv 2602.02710), for rewards that are never negative. `ddof` 1 divides the squared deviations by n - 1, 0 by n. Means and deviations are taken over
    the samples with a verdict only; `weights_PG` is how often each sample counts.
    """
    # float64: the sums decide whether a group is exactly 0, and the loss multiplies by float32 only at the end
    rewards, floor, known = rewards_PG.double(), max(floor, LEAST), ~rewards_PG.isnan()
    rounding = rewards.nan_to_num(0.0).abs().amax(dim=1, keepdim=True) * ROUNDING
    # subtract the group's minimum: equal rewards become exactly 0, and a large common part costs no precision
    lowest = rewards.masked_fill(~known, math.inf).amin(dim=1, keepdim=True)
    rewards = rewards - lowest
    times = known if weights_PG is None else weights_PG.double() * known
    count = times.sum(dim=1, keepdim=True)
    mean = (rewards.nan_to_num(0.0) * times).sum(dim=1, keepdim=True) / count.clamp(min=1)
    # from here on an unknown reward is 0, which adds nothing to a spread
    centred = torch.where(known, rewards - mean, 0.0)
    spread = _std(centred, count, ddof, weights_PG)
    # a single sample with a verdict was compared with nothing
    alive = (spread >= rounding.clamp(min=floor)) & (known.sum(dim=1, keepdim=True) >= 2)
    if scale == "group":
        advantages = centred / spread.clamp(min=floor)
    elif scale == "batch":
        # the spread of all centred rewards together: less noisy than the std of a few numbers
        every = None if weights_PG is None else weights_PG.reshape(1, -1)
        batch = _std(centred.reshape(1, -1), times.sum().reshape(1, 1), ddof, every)
        advantages = centred / batch.clamp(min=floor)
    elif scale == "mean":
        # by the group's own mean: its weight is that of 1 / p, so a prompt that is rarely solved weighs most
        advantages = centred / (lowest + mean).clamp(min=floor)
    else:
        # Dr.GRPO: dividing by the group's std would weigh prompts that are nearly solved or nearly hopeless most
        advantages = centred
    return torch.where(alive, advantages, 0.0).to(rewards_PG.dtype)


def leave_one_out(rewards_PG: Tensor, *, floor: float = 1e-6) -> Tensor:
    """(P, G) advantages of RLOO (arXiv 2402.14740): reward minus the mean of the other samples; no scaling."""
    known = ~rewards_PG.isnan()
    count = known.sum(dim=1, keepdim=True)
    centred = group_advantages(rewards_PG, scale="none", floor=floor)
    # r - (sum - r) / (n - 1) = (r - mean) n / (n - 1); a single sample already has 0
    return centred * count / (count - 1).clamp(min=1)


def length_weighted(rewards_PG: Tensor, lengths_PG: Tensor, *, floor: float = 1e-6) -> Tensor:
    """(P, G) advantages of OPO (arXiv 2505.23585): reward minus the group's mean in which each sample counts as often as it has
    tokens, (P, G) `lengths_PG`; no scaling."""
    return group_advantages(rewards_PG, scale="none", floor=floor, weights_PG=lengths_PG.clamp(min=1))


def best_of_k(rewards_PG: Tensor, k: int, *, floor: float = 1e-6) -> Tensor:
    """(P, G) advantages for the best of `k` samples, averaged over all subsets of k (pass@k training, after arXiv 2503.19595).

    With R and S the mean and the deviation of a subset's best reward over all subsets, a sample gets (mean over the subsets
    that hold it - R) / S. With rewards of 0 and 1 that mean is 1 for a right sample. 0 where fewer than k have a reward, and where
    S is below `floor`: no subset fails, or every one does.
    """
    out_PG = torch.zeros_like(rewards_PG)
    for row, rewards in enumerate(rewards_PG.tolist()):
        known = sorted((i for i, r in enumerate(rewards) if not math.isnan(r)), key=lambda i: rewards[i])
        n, ranked = len(known), [rewards[i] for i in known]
        if n < k:
            continue
        # the best of a subset is the j-th lowest reward if the others are among the j below it
        chances = [math.comb(j, k - 1) / math.comb(n, k) for j in range(n)]
        mean = math.fsum(c * r for c, r in zip(chances, ranked, strict=True))
        std = math.sqrt(math.fsum(c * (r - mean) ** 2 for c, r in zip(chances, ranked, strict=True)))
        if std < max(floor, LEAST, ROUNDING * max(map(abs, ranked))):
            continue
        for at, i in enumerate(known):
            # k - 1 others: the best of them is above this sample, or this sample is the best
            above = [(math.comb(j - 1, k - 2) if k > 1 else 0, ranked[j]) for j in range(at + 1, n)]
            own = math.comb(at, k - 1) * ranked[at]
            with_it = (own + math.fsum(c * r for c, r in above)) / math.comb(n - 1, k - 1)
            out_PG[row, i] = (with_it - mean) / std
    return out_PG


def token_baseline(rewards_PG: Tensor, energy_PGT: Tensor, mask_PGT: Tensor, *, floor: float = 1e-6) -> Tensor:
    """(P, G, T) float64 advantages of the optimal token baseline (arXiv 2602.07078): reward minus B_t, the group's mean of the
    rewards in which each sample counts by its energy up to token t.

    Args:
        rewards_PG: (P, G), NaN without a verdict: in no mean, and 0.
        energy_PGT: (P, G, T) the squared length of the gradient on the logits of each token, 1 - 2 p + sum p^2.
        mask_PGT: (P, G, T) 1 on the model's own tokens; samples that have ended count no more.
        floor: a group whose rewards spread less gets 0.
    """
    alive_PG = (
        group_advantages(rewards_PG, scale="none", floor=floor).ne(0).any(dim=1, keepdim=True) & ~rewards_PG.isnan()
    )
    counts_PGT = mask_PGT.double() * alive_PG[..., None]
    running_PGT = (energy_PGT.double() * counts_PGT).cumsum(dim=-1) * counts_PGT
    r_PG1 = rewards_PG.double().nan_to_num(0.0)[..., None]
    baseline_P1T = (running_PGT * r_PG1).sum(dim=1, keepdim=True) / running_PGT.sum(dim=1, keepdim=True).clamp(
        min=LEAST
    )
    return (r_PG1 - baseline_P1T) * counts_PGT


def normalise_then_sum(rewards_PGK: Tensor, weights_K: Tensor, *, ddof: int = 1, floor: float = 1e-6) -> Tensor:
    """(P, G, K) parts to (P, G) advantages, as GDPO: each part is scaled in its group, summed by weight, scaled over
    the batch.

    A sample that lacks a part has no sum, so it is in none of the parts' means. Each group is centred by itself; a
    group whose sums are equal gets exactly 0.
    """
    floor = max(floor, LEAST)
    # leave out a sample with a missing part: a sum over fewer parts would look like a lower reward
    unknown = rewards_PGK.isnan().any(dim=-1)
    rewards_PGK = rewards_PGK.masked_fill(unknown.unsqueeze(-1), float("nan"))
    parts = [group_advantages(rewards_PGK[..., k], ddof=ddof, floor=floor) for k in range(rewards_PGK.shape[-1])]
    total = torch.stack(parts, dim=-1) @ weights_K.to(rewards_PGK.dtype)
    total = total.masked_fill(unknown, float("nan"))
    # parts may cancel: a group with equal sums has no signal, whatever its parts are
    known = ~total.isnan()
    count = known.sum(dim=1, keepdim=True)
    mean = total.nan_to_num(0.0).sum(dim=1, keepdim=True) / count.clamp(min=1)
    alive = _std(torch.where(known, total - mean, 0.0), count, ddof) >= floor
    # centred and scaled over the batch as GDPO does; `alive` was decided by each group's own mean
    centred = torch.where(known, total - total.nanmean(), 0.0)
    std = _std(centred.reshape(1, -1), known.sum().reshape(1, 1), ddof)
    return torch.where(alive & known, centred / std.clamp(min=floor), 0.0)


def normalised_apart(
    rewards_PG: Tensor, parts_PGK: Tensor, weights_K: Sequence[float], *, ddof: int = 1, floor: float = 1e-6
) -> Tensor:
    """(P, G) rewards and (P, G, K) further parts to (P, G) advantages: each is scaled in its group and weighed, as HRAS does
    (CORA, arXiv 2606.14691); `weights_K` has one more, the first, for the rewards.

    A sample that lacks a further part keeps the others. One without a reward gets 0, and counts in no part's mean: it would be paid
    for its form alone.
    """
    first, *rest = weights_K
    total_PG = first * group_advantages(rewards_PG, ddof=ddof, floor=floor)
    for part_PG, weight in zip(parts_PGK.unbind(-1), rest, strict=True):
        if weight:
            known_PG = part_PG.masked_fill(rewards_PG.isnan(), math.nan)
            total_PG = total_PG + weight * group_advantages(known_PG, ddof=ddof, floor=floor)
    return total_PG


def inverted(advantages: Sequence[float], is_right: Sequence[bool | None]) -> list[bool]:
    """Of each right sample of a group, whether the advantage of a wrong one is as high; None has no verdict."""
    wrong = [a for a, right in zip(advantages, is_right, strict=True) if right is False]
    best = max(wrong, default=-math.inf)
    return [a <= best for a, right in zip(advantages, is_right, strict=True) if right]


def _std(centred: Tensor, count: Tensor, ddof: int, weights: Tensor | None = None) -> Tensor:
    # for a single sample `count - ddof` is 0, and so are its squares
    squares = centred.square() if weights is None else centred.square() * weights
    return (squares.sum(dim=1, keepdim=True) / (count - ddof).clamp(min=1)).sqrt()


# The outcome gate. A reward is R = T + S: T pays the outcome, S pays everything else (format, length, penalties). If T
# is equal in a group, all its spread comes from S, and dividing by that spread makes advantages of full size however
# small the weight of S. So in such a group R is replaced by T before anything else is computed. The measurement behind
# it is verl-recipe, issue 125.


def told_apart(outcomes_PG: Tensor, *, ddof: int = 1, floor: float = LEAST) -> Tensor:
    """(P,) bool from (P, G) outcomes: whether they spread by at least `floor`. NaN is unknown; fewer than two known
    outcomes do not spread."""
    # the same definition of a spread as for advantages
    return group_advantages(outcomes_PG, scale="none", ddof=ddof, floor=floor).ne(0).any(dim=1)


def gate(outcomes_PG: Tensor, rewards_PG: Tensor, *, ddof: int = 1, floor: float = 1e-6) -> tuple[Tensor, Tensor]:
    """(P, G) gated rewards, and (P,) bool whether the outcomes of a group spread.

    An outcome counts only if its reward is known. NaN (no verdict) stays NaN.
    """
    # an outcome without a reward is never paid, so it must not keep a group alive
    known_PG = outcomes_PG.masked_fill(rewards_PG.isnan(), math.nan)
    alive_P = told_apart(known_PG, ddof=ddof, floor=floor)
    return torch.where(alive_P[:, None], rewards_PG, known_PG), alive_P


# Pruning: sample many, train on few. PODS (arXiv 2504.13818) keeps the subset whose rewards vary most and forms advantages
# within it; CPPO (arXiv 2503.22342) forms advantages over the whole group and keeps the largest. Samples left out are
# not in the loss's mean either. It saves update time only: worth it where updates are the bottleneck, not generation.

By = Literal["variance", "advantage"]


def most_varied(rewards: Sequence[float], keep: int) -> list[int]:
    """Indices of the `keep` rewards with the largest variance. PODS shows that these are always some of the lowest and
    some of the highest, so only keep + 1 splits of the sorted rewards are tried, not every subset.

    Samples without a reward come last. Among splits of equal variance the one with most high rewards is taken.
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
    # splits that differ only in the last bits count as equal, relative to the scale of the rewards
    best = max(high for high, one in enumerate(spreads) if one >= max(spreads) * (1 - 1e-9))
    return sorted(split(best) + unknown[: keep - keep_known])


def largest(advantages: Sequence[float], keep: int) -> list[int]:
    """Indices of the `keep` advantages with the largest absolute value; among equals the earlier ones."""
    return sorted(sorted(range(len(advantages)), key=lambda i: (-abs(advantages[i]), i))[:keep])


def kept_mask(values_PG: Tensor, keep: int, by: By) -> Tensor:
    """(P, G) True where a sample stays, by rewards (`variance`) or advantages (`advantage`)."""
    mask = torch.zeros(values_PG.shape, dtype=torch.bool)
    for row, values in enumerate(values_PG.tolist()):
        mask[row, most_varied(values, keep) if by == "variance" else largest(values, keep)] = True
    return mask.to(values_PG.device)
