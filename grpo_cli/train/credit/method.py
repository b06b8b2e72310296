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
from grpo_cli.train.credit.gated import beside_outcome, paid, paid_by_turn
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
    fine: float = 0.0
    """What an invalid action of an episode takes off its reward."""

    @classmethod
    def of(cls, recipe: Recipe) -> Method:
        """The method of a recipe."""
        weights = {name: spec.weight for name, spec in recipe.verify.items() if spec.weight}
        fine = sum(weights.get(name, 0.0) * fine for name, fine in recipe.fines.items())
        return cls(recipe.train, weights, fine)

    def credit(self, groups: Sequence[Group], penalty_PG: Tensor | None = None) -> Credit:
        """What each sample of these groups, all of one size, is worth; `penalty_PG` is taken off the rewards."""
        pay = paid(self.train, groups)
        rewards_PG = pay.rewards_PG
        parts_PGK = weights_K = None
        if self.train.reward_combine == "normalise_then_sum":
            # in the order of the weights below
            parts_PGK = torch.tensor([group.parts(self.weights) for group in groups], dtype=torch.float64)
            parts_PGK = torch.where(pay.gated_P[:, None, None], 0.0 * parts_PGK, parts_PGK)  # NaN stays
            # shaping is the last part
            weights_K = torch.tensor([*self.weights.values(), 1.0], dtype=torch.float64)
        own = credit(self.train, rewards_PG, parts_PGK, weights_K)
        metrics = beside_outcome(self.train, groups, pay.alive_P, own.A_PG)
        if self.train.credit is None:
            made = (
                own
                if penalty_PG is None
                else credit(self.train, rewards_PG, parts_PGK, weights_K, penalty_PG)
            )
            return replace(made, metrics=metrics)
        found = turn_parts(self.train, self.train.credit, self.by_turn(groups))
        finer = token_credit(self.train, groups, found)
        made = credit(self.train, rewards_PG, parts_PGK, weights_K, penalty_PG, finer)
        return replace(made, metrics=metrics | found.metrics | _step_share(made, finer))

    def by_turn(self, groups: Sequence[Group]) -> list[Group]:
        """These groups with the rewards that are spread over turns or tokens: as `paid`, less what invalid actions cost."""
        return paid_by_turn(groups, paid(self.train, groups).gated_P, self.fine)

    def has_signal(self, group: Group) -> bool:
        """Whether some advantage of it is not 0, in whatever batch it stands."""
        return bool(self.credit([group]).signal_P[0])


def _step_share(made: Credit, finer: TokenCredit) -> dict[str, float]:
    """How large the part of the turns is beside the samples' own advantages: mean sizes over the tokens of the model."""
    assert made.A_PGT is not None
    part_PGT = finer.part_PGT * made.kept_PG[..., None]
    own = float((made.A_PGT - part_PGT).abs().sum())
    return {"credit/step_share": float(part_PGT.abs().sum()) / own} if own else {}
