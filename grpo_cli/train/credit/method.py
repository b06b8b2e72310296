"""A recipe's method, asked of groups: their advantages, and whether a group has signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from grpo_cli.algorithm.credit import Credit, TokenCredit, credit
from grpo_cli.recipe.sections.recipe import Recipe, Train
from grpo_cli.reward.group import Group
from grpo_cli.train.credit.turns import token_credit, turn_parts


class CreditMethod(Protocol):
    """What a step asks of a method."""

    def credit(self, groups: Sequence[Group], penalty_PG: Tensor | None = None) -> Credit: ...
    def has_signal(self, group: Group) -> bool: ...


@dataclass(frozen=True)
class Method:
    """The `train` section, and the weights of the verifiers whose scores are parts of the reward."""

    train: Train
    weights: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Recipe) -> Method:
        """The method of a recipe."""
        return cls(recipe.train, {name: spec.weight for name, spec in recipe.verify.items() if spec.weight})

    def credit(self, groups: Sequence[Group], penalty_PG: Tensor | None = None) -> Credit:
        """What each sample of these groups, all of one size, is worth; `penalty_PG` is taken off the rewards."""
        rewards_PG = torch.tensor([group.rewards for group in groups])
        parts_PGK = weights_K = finer = None
        if self.train.reward_combine == "normalise_then_sum":
            # in the order of the weights below
            parts_PGK = torch.tensor([group.parts(self.weights) for group in groups])
            weights_K = torch.tensor([*self.weights.values(), 1.0])  # shaping is the last part
        if self.train.credit is None:
            return credit(self.train, rewards_PG, parts_PGK, weights_K, penalty_PG)
        found = turn_parts(self.train, self.train.credit, groups)
        finer = token_credit(self.train, groups, found)
        made = credit(self.train, rewards_PG, parts_PGK, weights_K, penalty_PG, finer)
        return replace(made, metrics=found.metrics | _step_share(made, finer))

    def has_signal(self, group: Group) -> bool:
        """Whether some advantage of it is not 0, in whatever batch it stands."""
        return bool(self.credit([group]).signal_P[0])


def _step_share(made: Credit, finer: TokenCredit) -> dict[str, float]:
    """How large the part of the turns is beside the samples' own advantages: mean sizes over the tokens of the model."""
    assert made.A_PGT is not None
    part_PGT = finer.part_PGT * made.kept_PG[..., None]
    own = float((made.A_PGT - part_PGT).abs().sum())
    return {"credit/step_share": float(part_PGT.abs().sum()) / own} if own else {}
