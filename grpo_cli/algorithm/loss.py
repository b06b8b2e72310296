"""The parts of a micro-batch's loss that TRL has no option for: which tokens count, KL terms, dead rows, GSPO-token.

How this works. TRL computes ratio, clip, k3 and the mean over tokens; `hooked_loss` of `train/trainer.py` puts this around it:
`drop_dead_rows` and `trim` cut what has no gradient, `MicroBatchLogProbs` keeps the log-probs that TRL computes,
`kl_per_token` and `aggregate` make the terms that TRL lacks. `loss_mask` is the only definition of a token that counts.
`Objective` holds the recipe's settings for all this. B rows, T completion tokens.

An episode of many turns is one row in which observations stand between the model's turns. They are attended to, so
`completion_mask` includes them. Means, sums and counts over the model's tokens must exclude them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from grpo_cli.recipe.sections.method import acts_on_every_row

if TYPE_CHECKING:
    from accelerate import Accelerator

    from grpo_cli.recipe.sections.recipe import Estimator, Loss, Train


Span = tuple[int, int, float]
"""[start, end) of a row's tokens, and the value for each of them."""


def loss_mask(batch: Mapping[str, Any]) -> Tensor:
    """[B, T] 1 where a token counts in the loss: the model generated it, and its row is not left out.

    No other code multiplies masks. `batch` is one of TRL's, in which `tool_mask` is 0 on an environment's tokens.
    """
    # a row that is left out (`leave_out_cut`) has a `completion_mask` of zeros
    mask: Tensor = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def spread(rows: Sequence[Sequence[Span]], width: int) -> Tensor:
    """[B, width] float64: the value of each span on its tokens, 0 elsewhere; where spans overlap the later one wins."""
    out_BT = torch.zeros(len(rows), width, dtype=torch.float64)
    for row, spans in enumerate(rows):
        for start, end, value in spans:
            out_BT[row, start:end] = value
    return out_BT


# Estimates of KL(policy || the model the run started from) from log-probs of samples. `k1_loss` has an expected gradient of
# zero (E[grad log p] = 0), so as a loss it anchors nothing; `k2` and `k3_corrected` have the gradient of
# KL(policy || reference), plain `k3` that of KL(reference || policy). `k1_reward` is not a loss term: it is subtracted
# from the rewards before advantages are computed.


def kl_per_token(logps: Tensor, ref: Tensor, estimator: Estimator) -> Tensor:
    """Estimates of KL(policy || reference) at each token, of one sample each and without any weight of the ratio.

    With r = reference / policy: k1 is -log r (unbiased, of either sign), k2 (log r)^2 / 2, k3 r - 1 - log r (unbiased,
    never negative); J. Schulman, "Approximating KL divergence", 2020.

    Args:
        logps: log-probs of the sampled tokens under the policy, [B, T].
        ref: the same tokens under the reference, [B, T].
        estimator: a name of the recipe's `train.kl.estimator`; `k3_corrected` is k3 here, the loss multiplies it by the
        ratio.

    Returns:
        [B, T] nats, with the gradient of `logps`; padding is not masked.
    """
    # -log r
    apart = logps - ref
    if estimator in ("k1_loss", "k1_reward"):
        return apart
    if estimator == "k2":
        return apart.square() / 2
    return (-apart).exp() + apart - 1


def answer_kl(logps_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B,) k1 of whole answers in nats: the sum of log-ratios over the tokens that `mask_BT` counts."""
    return (kl_per_token(logps_BT, ref_BT, "k1_reward") * mask_BT).sum(dim=1)


def token_kl(logps_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor, accelerator: Accelerator) -> float:
    """k3 in nats, averaged over the tokens of all ranks (long answers weigh more): the metric `kl`.

    Every rank must call it, because it sums over ranks. 0 if no token counts.
    """
    summed = (kl_per_token(logps_BT, ref_BT, "k3") * mask_BT).sum()
    total_2: Tensor = accelerator.reduce(torch.stack([summed, mask_BT.sum().to(summed)]), reduction="sum")
    return float(total_2[0] / total_2[1].clamp(min=1))


# Dead rows: a row with advantage 0 adds nothing to the gradient, so leaving it out before the forward pass saves its
# cost. This is exact only without a KL term or entropy bonus, and with the normaliser of the whole batch. Losses that
# average over the rows or tokens they get are multiplied by the share that was kept.

PER_BATCH = {"dapo", "cispo", "vespo"}  # normalised by the token count of the whole generation batch
PER_ROW = {"grpo", "sapo", "dr_grpo", "luspo", "gmpo"}  # a mean over rows
PER_TOKEN = {"bnpo"}  # a mean over this micro-batch's tokens


def drop_dead_rows(inputs: dict[str, Any], loss: str) -> tuple[dict[str, Any], float]:
    """The batch without rows of zero advantage, and the factor that restores the loss of the whole batch.

    One row stays where all are dead, so that there is a graph to differentiate.

    Args:
        inputs: one of TRL's micro-batches: tensors whose first axis is B are cut, the rest stays.
        loss: TRL's name of the loss.

    Raises:
        ValueError: for this loss no factor restores the loss of all rows.
    """
    alive = inputs["advantages"] != 0
    if alive.dim() > 1:
        alive = alive.any(dim=1)
    n, keep = len(alive), int(alive.sum())
    if not keep:
        alive[0], keep = True, 1
    if keep == n:
        return inputs, 1.0
    mask = loss_mask(inputs)
    if loss in PER_BATCH:
        share = 1.0
    elif loss in PER_ROW:
        # a mean over fewer rows is too large by n / kept
        share = keep / n
    elif loss in PER_TOKEN:
        share = int(mask[alive].sum()) / max(int(mask.sum()), 1)
    else:
        raise ValueError(f"no exact normaliser is known for loss `{loss}`")
    kept = {
        key: value[alive] if torch.is_tensor(value) and value.dim() > 0 and value.shape[0] == n else value
        for key, value in inputs.items()
    }
    return kept, share


def trim(inputs: dict[str, Any]) -> dict[str, Any]:
    """The batch without columns that are padding in all rows.

    At least two columns stay: TRL takes a single column for one value a row, and then counts masked rows too.
    """
    width = max(int(inputs["completion_mask"].sum(dim=1).max()), 2)
    full = inputs["completion_ids"].shape[1]
    lead = int((inputs["prompt_mask"].sum(dim=1)).max())
    trimmed = dict(inputs)
    for key, value in inputs.items():
        if key in ("prompt_ids", "prompt_mask"):
            # prompts are padded on the left, completions on the right
            trimmed[key] = value[:, value.shape[1] - lead :]
        elif torch.is_tensor(value) and value.dim() == 2 + key.startswith("teacher_") and value.shape[1] == full:
            trimmed[key] = value[:, :width]
    return trimmed


@dataclass(frozen=True)
class Objective:
    """The loss of a recipe."""

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
    """Whether some term has a gradient on rows with advantage 0: a KL or entropy term, a router's loss, imitation, DPPO's pull."""
    bound: Literal["ratio", "tv", "kl"] = "ratio"
    """What bounds the update: the ratio's clip, or a mask of tokens whose probability moved by `delta` (DPPO)."""
    delta: float = 0.0
    pull: float = 0.0
    low: float = 0.0
    high: float = 0.0
    """Bounds of a token's log ratio, of `loss: gmpo`."""

    @classmethod
    def of(cls, train: Train, group: int) -> Objective:
        """The objective of a recipe's `train` section, for groups of this size."""
        in_loss = train.kl.beta > 0 and train.kl.estimator not in ("k1_reward", "k1_token")
        kept = train.prune.keep / group if train.prune else 1.0
        imitates = train.critic.positive if train.critic else 0.0
        every_row = bool(in_loss or imitates or train.pulls_every_row or acts_on_every_row(train.trl))
        drop = train.dead_groups != "keep" and not every_row
        kl, pull = train.kl, train.clip.pull if train.pulls_every_row else 0.0
        bounds = train.ratio_clip, train.mask_delta, pull, train.clip.low, train.clip.high
        return cls(train.loss, train.ratio, kl.beta, kl.estimator, drop, imitates, kept, every_row, *bounds)

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
        """The weight of an answer's KL that is subtracted from its reward."""
        return self.beta if self.estimator == "k1_reward" else 0.0

    @property
    def token_beta(self) -> float:
        """The weight of a token's KL that is subtracted from the token's reward."""
        return self.beta if self.estimator == "k1_token" else 0.0


class MicroBatchLogProbs:
    """One micro-batch during TRL's loss: keeps the log-probs that TRL computes, with their graph. A bound of our own stands in for
    TRL's clip: it changes the advantages (DPPO) or the old log-probs (GMPO, GSPO-token) that TRL reads after them."""

    def __init__(self, objective: Objective, inputs: dict[str, Any]) -> None:
        self.objective, self.inputs = objective, dict(inputs)
        self.logps_BT: Tensor | None = None
        self.bounded_BT: Tensor | None = None
        """(B, T) bool, tokens whose gradient a bound of our own took away; None where TRL clips."""
        self.rises_BT = self.inputs["advantages"] > 0
        """(B,) or (B, T) bool, where the loss raises the probability."""

    @property
    def mask_BT(self) -> Tensor:
        """(B, T) 1 where a token counts in the loss."""
        return loss_mask(self.inputs)

    def update(self, logps_BT: Tensor) -> None:
        """Called with the policy's log-probs before TRL looks up the old ones."""
        self.logps_BT = logps_BT
        old = self.inputs.get("old_per_token_logps")
        # without old log-probs TRL uses the current ones: every token's ratio is 1, and so is the sequence's
        if old is None:
            return
        own = self.objective
        A_BT = self.inputs["advantages"]
        if A_BT.dim() == 1:
            A_BT, self.rises_BT = A_BT[:, None], self.rises_BT[:, None]
        if own.ratio == "sequence_token":
            self.inputs["old_per_token_logps"] = sequence_token_old(logps_BT, old, self.mask_BT)
        if own.loss == "gmpo":
            log_BT = one_sided(logps_BT - old, A_BT, own.low, own.high)
            self.bounded_BT = log_BT.detach() != logps_BT.detach() - old
            self.inputs["old_per_token_logps"] = logps_BT - log_BT  # TRL takes the mean of what it differs by
        if own.bound != "ratio":
            self.bounded_BT = moved_too_far(logps_BT.detach(), old, A_BT, own.bound, own.delta)
            self.inputs["advantages"] = A_BT * ~self.bounded_BT

    def pull(self) -> Tensor | None:
        """(B, T) DPPO's squared log ratio; None where the recipe has none, or a batch is used once and every ratio is 1."""
        old = self.inputs.get("old_per_token_logps")
        if not self.objective.pull or old is None or self.logps_BT is None:
            return None
        return torch.square(self.logps_BT - old)


def one_sided(log_BT: Tensor, A_BT: Tensor, low: float, high: float) -> Tensor:
    """(B, T) log ratios as GMPO clips them (arXiv 2507.20673): at most `high` where the advantage is above 0, else at least -`low`."""
    return torch.where(A_BT > 0, log_BT.clamp(max=high), log_BT.clamp(min=-low))


def moved_too_far(now_BT: Tensor, old_BT: Tensor, A_BT: Tensor, bound: str, delta: float) -> Tensor:
    """(B, T) bool, tokens that DPPO masks (arXiv 2602.04879): their probability has moved by more than `delta` to where their
    advantage pushes it. `tv` is the difference of probabilities, `kl` the divergence of token against rest, old from new."""
    p, q = now_BT.exp(), old_BT.exp()
    moved = p - q
    if bound == "kl":
        rest_p, rest_q = (-torch.expm1(x).clamp(max=-1e-12) for x in (now_BT, old_BT))
        apart = q * (old_BT - now_BT) + rest_q * (rest_q.log() - rest_p.log())
    else:
        apart = moved.abs()
    return (apart > delta) & (moved * A_BT > 0)


def sequence_token_old(logps_BT: Tensor, old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The "old" log-probs with which a token-level ratio is GSPO-token's sg[s] * exp(lp - sg[lp]).

    That is eq. 14 of arXiv 2507.18071. s is the sequence's ratio to the power of 1 / length (eq. 7); subtracting what is
    returned from lp leaves lp - sg[lp] + sg[log s]. `sg` stops the gradient.

    Args:
        logps_BT: log-probs under the policy, with their graph.
        old_BT: log-probs under the policy that sampled.
        mask_BT: 1 where a token counts; a row without any has log s = 0.

    Returns:
        (B, T), without a graph.
    """
    # TRL computes exp(lp - old): with old = sg[lp] - log s it is s in value, with the gradient of every token's own lp
    now_BT = logps_BT.detach()
    log_s_B1 = ((now_BT - old_BT) * mask_BT).sum(dim=1, keepdim=True) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
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
        loss: grpo, gmpo and sapo average the rows' means (arXiv 2402.03300, eq. 3), bnpo the tokens of this micro-batch, dr_grpo
            the rows' sums over `max_tokens` (arXiv 2503.20783), luspo the rows' sums; the others divide by `items`.
        items: tokens of the whole generation batch on one process, which is split into
        generation: micro-batches.
        accumulate: micro-batches of an optimizer step, whose losses add up.
        max_tokens: the most tokens a completion may have.

    Returns:
        A scalar with the graph of `per_token_BT`.
    """
    # the divisors of TRL 1.16's `_compute_loss`: with others the weight of our terms would depend on length
    summed_B, count_B = (per_token_BT * mask_BT).sum(dim=1), mask_BT.sum(dim=1)
    if loss in ("grpo", "sapo", "gmpo"):
        return (summed_B / count_B.clamp(min=1)).mean() / accumulate
    if loss == "bnpo":
        return summed_B.sum() / count_B.sum().clamp(min=1) / accumulate
    if loss == "dr_grpo":
        # a constant divisor: dividing by a row's own length would favour short right and long wrong answers
        return summed_B.sum() / (len(summed_B) * max_tokens) / accumulate
    if loss == "luspo":
        return summed_B.mean() / accumulate
    return summed_B.sum() / (items * accumulate / generation)
