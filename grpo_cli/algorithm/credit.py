"""Turns the rewards of a batch into the weights of its loss, and defines when a group has signal.

How this works. `credit` reads a recipe's `train` section and makes a `Credit`: `_outcome` makes one advantage a sample
(`algorithm/advantage.py`), `_joined` adds credit finer than a sample (`TokenCredit`: turns, plans), pruning leaves
samples out. With a KL penalty on the reward everything is computed again, because baseline and spread change too. The
advantage of token t of sample i is

    A_it = A_i u_it + p_it      u_it 1 where the sample's own advantage applies, p_it the part of its turn

and 0 on all tokens that the model did not generate.

A group has *signal* if one of its advantages is not 0. In every method this depends on the group alone, so it is known
before the batch is complete. `train/credit.py` is the other half: it turns judged groups into these tensors. P prompts,
G samples, K parts of a reward, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grpo_cli.algorithm.advantage import (
    best_of_k,
    group_advantages,
    kept_mask,
    leave_one_out,
    length_weighted,
    normalise_then_sum,
    normalised_apart,
)

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Train


@dataclass(frozen=True)
class Credit:
    """The advantages and related results for each sample of a batch.

    Args:
        A_PG: (P, G) advantages; where tokens differ, the mean over those that the model generated.
        kept_PG: (P, G) bool, False where pruning leaves a sample out.
        signal_P: (P,) bool, from the judged rewards before a KL penalty, which would spread every group.
        A_PGT: (P, G, T) advantages of tokens, 0 on tokens that are not the model's own; None where they are one number a sample.
        metrics: numbers to show about how the advantages were made.
        values: of each sample the critic's values before its answer or before each turn of it; None without a critic.
        pull_PG: (P, G) the sum of |advantage| over its tokens; None without a critic.
    """

    A_PG: Tensor
    kept_PG: Tensor
    signal_P: Tensor
    A_PGT: Tensor | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    values: Sequence[Sequence[Sequence[float]]] | None = None
    pull_PG: Tensor | None = None

    def pulls(self, tokens_PG: Tensor) -> Tensor:
        """(P, G) the pull of each sample: |advantage| summed over the model's tokens, whose number is given."""
        if self.pull_PG is not None:
            return self.pull_PG
        # A_PG is then a mean over tokens, in which advantages of both signs cancel
        return self.A_PG.abs() * tokens_PG if self.A_PGT is None else self.A_PGT.abs().sum(dim=-1)

    @property
    def alive_PG(self) -> Tensor:
        """(P, G) bool, whether a sample has an advantage that is not 0 on some token."""
        return self.A_PG != 0 if self.A_PGT is None else (self.A_PGT != 0).any(dim=-1)

    def rows(self, own: Sequence[int] | Tensor, width: int) -> Tensor:
        """(B,) or (B, width) advantages of the samples with these indices in the batch, once for each time an index is given;
        rows are padded to `width` tokens."""
        if self.A_PGT is None:
            return self.A_PG.flatten(0, 1)[own]
        # this rank's batch is padded to its own width, which differs from the widest row of all ranks
        A_BT = self.A_PGT.flatten(0, 1)[own, :width]
        return torch.nn.functional.pad(A_BT, (0, width - A_BT.shape[1]))


@dataclass(frozen=True)
class TokenCredit:
    """Credit finer than a sample: its own advantage on the tokens of `outcome_PGT`, and `part_PGT` added to that.

    `model_PGT` is 1 on the tokens that the model generated; the other two are 0 elsewhere. All (P, G, T). `weights_PG` (P, G)
    is how often each sample counts in the mean of its group, None: once.
    """

    model_PGT: Tensor
    outcome_PGT: Tensor
    part_PGT: Tensor
    weights_PG: Tensor | None = None


def credit(
    train: Train,
    rewards_PG: Tensor,
    parts_PGK: Tensor | None = None,
    weights_K: Tensor | None = None,
    penalty_PG: Tensor | None = None,
    finer: TokenCredit | None = None,
    lengths_PG: Tensor | None = None,
) -> Credit:
    """Advantages by a recipe's `train` section, of groups of one size.

    Args:
        train: baseline, scale, floor, pruning and how parts are combined.
        rewards_PG: (P, G) float; NaN where there is no verdict: out of the baseline, advantage 0.
        parts_PGK: (P, G, K) scores behind the rewards and
        weights_K: (K,) their weights, with `split` one more, the first, for the rewards; used with `reward_combine:
            normalise_then_sum` and `split` only.
        penalty_PG: (P, G) what a KL takes off each reward.
        finer: additional credit of single tokens; baseline, scale and KL apply to the sample's own advantage only.
        lengths_PG: (P, G) tokens of each sample; used with `baseline: length` only.

    With `baseline: critic` the advantages are the rewards; the critic computes its own advantages from them later.
    """
    # a critic compares a reward with its own values, not with a group: every reward has signal
    if train.baseline == "critic":
        known_PG = ~rewards_PG.isnan()
        return Credit(rewards_PG.nan_to_num(0.0), torch.ones_like(known_PG), known_PG.any(dim=1))
    times_PG = lengths_PG if finer is None else finer.weights_PG
    A_PG, kept_PG = _outcome(train, rewards_PG, parts_PGK, weights_K, times_PG)
    judged = _finished(train, A_PG, kept_PG, finer)
    if penalty_PG is None:
        return judged
    lively_P = A_PG.ne(0).any(dim=1)
    # compute everything again: the penalty changes baseline and spread too
    A_PG, kept_PG = _outcome(train, rewards_PG - penalty_PG, parts_PGK, weights_K, times_PG)
    moved = replace(_finished(train, A_PG, kept_PG, finer), signal_P=judged.signal_P)
    if train.scale == "group" or (train.scale == "batch" and not lively_P.any()):
        # without signal the only spread is the penalty's: divided by itself it would not depend on beta
        still = _joined(torch.where(lively_P[:, None], A_PG, 0.0), moved.kept_PG, finer)
        return replace(still, kept_PG=moved.kept_PG, signal_P=judged.signal_P)
    return moved


def _finished(train: Train, A_PG: Tensor, kept_PG: Tensor, finer: TokenCredit | None) -> Credit:
    """The credit with per-token parts added, and pruned by advantage if the recipe asks for it."""
    prune = train.prune
    if prune is not None and prune.by == "advantage":
        whole = _joined(A_PG, kept_PG, finer)
        # the pull is computed from tokens: in a mean, token advantages of both signs would cancel
        size_PG = A_PG if whole.A_PGT is None else whole.A_PGT.abs().sum(dim=-1)
        kept_PG = kept_mask(size_PG, prune.keep, "advantage")
    return _joined(A_PG, kept_PG, finer)


def _joined(A_PG: Tensor, kept_PG: Tensor, finer: TokenCredit | None) -> Credit:
    # a pruned sample has advantage 0; `put_credit` removes its tokens from the normaliser
    A_PG = A_PG * kept_PG
    if finer is None:
        return Credit(A_PG, kept_PG, A_PG.ne(0).any(dim=1))
    A_PGT = A_PG[..., None] * finer.outcome_PGT + finer.part_PGT * kept_PG[..., None]
    # average over the model's own tokens: observations have no advantage and would lower the mean
    rows_PG = A_PGT.sum(dim=-1) / finer.model_PGT.sum(dim=-1).clamp(min=1)
    return Credit(rows_PG, kept_PG, A_PGT.ne(0).flatten(1).any(dim=1), A_PGT)


def _outcome(
    train: Train, rewards_PG: Tensor, parts_PGK: Tensor | None, weights_K: Tensor | None, times_PG: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(P, G) advantages of the samples, and which of them pruning by variance keeps."""
    floor, ddof, prune = train.floor, train.std_ddof, train.prune
    kept_PG = torch.ones(rewards_PG.shape, dtype=torch.bool, device=rewards_PG.device)
    if prune is not None and prune.by == "variance":
        kept_PG = kept_mask(rewards_PG, prune.keep, "variance")
        # treat pruned samples as having no verdict: PODS computes mean and spread of the kept ones
        rewards_PG = rewards_PG.masked_fill(~kept_PG, math.nan)
    if train.reward_combine == "normalise_then_sum":
        assert parts_PGK is not None and weights_K is not None
        A_PG = normalise_then_sum(parts_PGK, weights_K, ddof=ddof, floor=floor)
    elif train.reward_combine == "split":
        assert parts_PGK is not None and weights_K is not None
        A_PG = normalised_apart(rewards_PG, parts_PGK, weights_K.tolist(), ddof=ddof, floor=floor)
    elif train.baseline == "leave_one_out":
        A_PG = leave_one_out(rewards_PG, floor=floor)
    elif train.baseline == "pass_k":
        assert train.pass_k is not None
        A_PG = best_of_k(rewards_PG, train.pass_k, floor=floor)
    elif train.baseline == "length":
        assert times_PG is not None
        A_PG = length_weighted(rewards_PG, times_PG, floor=floor)
    else:
        A_PG = group_advantages(rewards_PG, scale=train.scale, ddof=ddof, floor=floor, weights_PG=times_PG)
    return A_PG, kept_PG
