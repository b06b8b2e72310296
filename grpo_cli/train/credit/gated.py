"""What groups are paid behind the outcome gate, and how much of a batch is learned from what is paid beside the outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from grpo_cli.algorithm.gate import gate, told_apart
from grpo_cli.recipe.sections.recipe import Train
from grpo_cli.reward.group import Group
from grpo_verifiers.verdict import Outcome


@dataclass(frozen=True)
class Paid:
    """A batch behind the gate.

    `rewards_PG` (P, G) float64 are what a method learns from, NaN without a verdict; `alive_P` (P,) bool says where outcomes
    spread, `gated_P` (P,) bool where the outcome is all that is paid for want of that.
    """

    rewards_PG: Tensor
    alive_P: Tensor
    gated_P: Tensor


def paid(train: Train, groups: Sequence[Group]) -> Paid:
    """What a recipe's `train` section pays these groups, all of one size.

    What is compared is gated: each group, or the whole batch with a critic, which compares all of its answers. A group whose
    outcomes nobody told from its rewards has no gate.
    """
    rewards_PG = _tensor([group.rewards for group in groups])
    P, G = rewards_PG.shape
    shape = (1, P * G) if train.baseline == "critic" else (P, G)
    compared = _outcomes(groups).reshape(shape), rewards_PG.reshape(shape)
    behind, alive = gate(*compared, ddof=train.std_ddof, floor=train.floor)
    alive_P = alive.expand(P)
    has_gate_P = torch.tensor([bool(group.outcomes) and train.alive_by != "reward" for group in groups])
    rewards_PG = torch.where(has_gate_P[:, None], behind.reshape(P, G), rewards_PG)
    return Paid(rewards_PG, alive_P, has_gate_P & ~alive_P)


def paid_by_turn(groups: Sequence[Group], gated_P: Tensor, fine: float) -> list[Group]:
    """These groups as turns and tokens are paid: gated ones the outcome alone, which invalid actions still cost `fine` each,
    since the turns that took them are paid so."""
    return [
        replace(g, rewards=[t - fine * c.invalid for t, c in zip(g.outcomes, g.completions, strict=True)])
        if is_gated
        else g
        for g, is_gated in zip(groups, gated_P.tolist(), strict=True)
    ]


def beside_outcome(train: Train, groups: Sequence[Group], alive_P: Tensor, A_PG: Tensor) -> dict[str, float]:
    """The metrics of what is paid beside the outcome; `A_PG` (P, G) are the samples' own advantages, `alive_P` as in `Paid`.

    None is measured with a critic, which has no groups, nor where nobody told outcomes from rewards.
    """
    if train.baseline == "critic" or not all(group.outcomes for group in groups):
        return {}
    tokens_PG = _tensor([[c.spoken for c in group.completions] for group in groups])
    pull_P = (A_PG.abs().double() * tokens_PG).sum(dim=1)
    apart_P = told_apart(_outcomes(groups), ddof=train.std_ddof)
    found = {"group/near_tie": float((apart_P & ~alive_P).double().mean())}
    if whole := float(pull_P.sum()):
        found["shape/alone"] = float(pull_P[~alive_P].sum()) / whole
    inverted = [one for group in groups for one in _inverted(group)]
    if inverted and train.control is None:  # a placebo pays no mind to right and wrong
        found["group/inverted"] = sum(inverted) / len(inverted)
    return found


def _inverted(group: Group) -> list[bool]:
    """Of each right sample with a reward, whether a wrong one of its group is paid as much."""
    pay = [
        (j.is_right, reward)
        for j, reward in zip(group.judgements, group.rewards, strict=True)
        if j.outcome is not Outcome.ERROR and not math.isnan(reward)
    ]
    best_wrong = max((reward for is_right, reward in pay if not is_right), default=-math.inf)
    return [reward <= best_wrong for is_right, reward in pay if is_right]


def _outcomes(groups: Sequence[Group]) -> Tensor:
    return _tensor([group.outcomes or group.rewards for group in groups])


def _tensor(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)
