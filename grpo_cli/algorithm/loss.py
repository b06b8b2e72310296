"""What a method's loss needs and TRL has no flag for: k1 and k2 as a loss term, and GSPO-token.

TRL computes the ratio, the clip, k3 and the aggregation; `train.learn` puts the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from grpo_cli.algorithm.spread import loss_mask
from grpo_cli.recipe.whole_batch import acts_on_every_row

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Estimator, Loss, Train


@dataclass(frozen=True)
class Objective:
    """The loss of a recipe, in our words."""

    loss: Loss
    ratio: str
    beta: float
    estimator: Estimator
    drop_dead: bool
    imitates: float = 0.0
    """The weight of imitating right answers."""
    kept: float = 1.0
    """Share of each group that pruning leaves in the loss."""
    every_row: bool = False
    """A term has a gradient on rows of advantage 0 too: a KL in the loss, an entropy bonus, the router's, imitation."""

    @classmethod
    def of(cls, train: Train, group: int) -> Objective:
        """The objective that a recipe's `train` section asks for, with groups of this size."""
        in_loss = train.kl.beta > 0 and train.kl.estimator not in ("k1_reward", "k1_token")
        kept = train.prune.keep / group if train.prune else 1.0
        imitates = train.critic.positive if train.critic else 0.0
        every_row = bool(in_loss or imitates or acts_on_every_row(train.trl))
        drop = train.dead_groups != "keep" and not every_row
        return cls(
            train.loss, train.ratio, train.kl.beta, train.kl.estimator, drop, imitates, kept, every_row
        )

    @property
    def needs_reference(self) -> bool:
        """Whether every sample is scored under the model the run started from."""
        return self.beta > 0

    @property
    def trl_beta(self) -> float:
        """The weight of the KL term that TRL computes itself."""
        return self.beta if self.estimator in ("k3", "k3_corrected") else 0.0

    @property
    def own_beta(self) -> float:
        """The weight of the KL term that is added here."""
        return self.beta if self.estimator in ("k1_loss", "k2") else 0.0

    @property
    def reward_beta(self) -> float:
        """The weight with which the KL of a whole answer is taken off its reward."""
        return self.beta if self.estimator == "k1_reward" else 0.0

    @property
    def token_beta(self) -> float:
        """The weight with which the KL of a token is taken off its own reward."""
        return self.beta if self.estimator == "k1_token" else 0.0


class MicroBatchLogProbs:
    """One micro-batch on its way through TRL's loss: sees the log-probs TRL computes, with their graph."""

    def __init__(self, objective: Objective, inputs: dict[str, Any]) -> None:
        self.objective, self.inputs = objective, dict(inputs)
        self.logps_BT: Tensor | None = None

    @property
    def mask_BT(self) -> Tensor:
        """(B, T) 1 where a token counts in the loss."""
        return loss_mask(self.inputs)

    def update(self, logps_BT: Tensor) -> None:
        """Called with the policy's log-probs before TRL looks up the old ones."""
        self.logps_BT = logps_BT
        old = self.inputs.get("old_per_token_logps")
        # without old log-probs TRL takes those of now: every ratio is 1, and so is the sequence's
        if self.objective.ratio == "sequence_token" and old is not None:
            self.inputs["old_per_token_logps"] = sequence_token_old(logps_BT, old, self.mask_BT)


def sequence_token_old(logps_BT: Tensor, old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The "old" log-probs with which a token-level ratio is GSPO-token's sg[s] * exp(lp - sg[lp]).

    That is eq. 14 of arXiv 2507.18071. s is the sequence's ratio to the power of 1 / length (eq. 7); subtracting what is returned from lp leaves
    lp - sg[lp] + sg[log s]. `sg` stops the gradient.

    Args:
        logps_BT: log-probs under the policy, with their graph.
        old_BT: log-probs under the policy that sampled.
        mask_BT: 1 where a token counts; a row without any has log s = 0.

    Returns:
        (B, T), without a graph.
    """
    now_BT = logps_BT.detach()
    log_s_B1 = ((now_BT - old_BT) * mask_BT).sum(dim=1, keepdim=True) / mask_BT.sum(
        dim=1, keepdim=True
    ).clamp(min=1)
    return now_BT - log_s_B1


def aggregate(
    per_token_BT: Tensor,
    mask_BT: Tensor,
    loss: Loss,
    *,
    items: Tensor | float,
    accumulate: int,
    generation: int,
    max_tokens: int,
) -> Tensor:
    """One number from per-token terms, as TRL's loss of that name averages its own.

    Args:
        per_token_BT: terms of one micro-batch, anything finite where the mask is 0.
        mask_BT: 1 where a token counts.
        loss: grpo and sapo average the rows' means (arXiv 2402.03300, eq. 3), bnpo the tokens of this micro-batch, dr_grpo
            the rows' sums over `max_tokens` (arXiv 2503.20783), luspo the rows' sums; the others divide by `items`.
        items: tokens of the whole generation batch on one process, which is used up in
        generation: micro-batches.
        accumulate: micro-batches of an optimizer step, whose losses add up.
        max_tokens: the most tokens a completion may have.

    Returns:
        A scalar with the graph of `per_token_BT`.
    """
    summed_B, count_B = (per_token_BT * mask_BT).sum(dim=1), mask_BT.sum(dim=1)
    if loss in ("grpo", "sapo"):
        return (summed_B / count_B.clamp(min=1)).mean() / accumulate
    if loss == "bnpo":
        return summed_B.sum() / count_B.sum().clamp(min=1) / accumulate
    if loss == "dr_grpo":
        return summed_B.sum() / (len(summed_B) * max_tokens) / accumulate
    if loss == "luspo":
        return summed_B.mean() / accumulate
    return summed_B.sum() / (items * accumulate / generation)
