"""PPO's arithmetic: rewards of tokens, generalised advantage estimation, the critic's unit and its loss.

How this works. All functions take one answer at a time, as lists of floats. `token_rewards` puts the outcome on the
tokens, `advantages` goes backwards over them,

    d_t = r_t + gamma V_(t+1) - V_t        A_t = d_t + gamma lambda A_(t+1)        (GAE, arXiv 1506.02438)

`whitened` scales them by the `Moments` of the whole batch, which can be combined over ranks. The critic learns the
returns A_t + V_t by `value_loss`, in the scale of a `ReturnUnit`.

A list holds one number a completion token. `mask` is 0 on an environment's tokens and on padding: these are skipped and
get 0, while the next value and the running advantage are carried across. Sums use Python floats, so that a batch gives
the same sums on two ranks as on one. B rows, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

ADAPTIVE = 0.05
"""Alpha of VAPO's length-adaptive decay (arXiv 2504.05118): 1 - 1 / (alpha x tokens)."""


def token_rewards(
    outcome: float,
    mask: Sequence[int],
    *,
    beta: float = 0.0,
    logps: Sequence[float] = (),
    ref: Sequence[float] = (),
    steps: Iterable[tuple[int, float]] = (),
) -> list[float]:
    """The reward of each token: `outcome` at the last token that counts, `steps` (end of a turn, its reward) at the
    last token of their turn, minus beta (log p - log p of the reference) at every token.

    The steps' rewards are part of the outcome: the last token gets the rest, so that a row sums to the outcome.
    """
    # a row without model tokens has no token to pay
    paid = [0.0] * len(mask)
    own = [t for t, counts in enumerate(mask) if counts]
    if not own:
        return paid
    rest = outcome
    for end, reward in steps:
        # the reward of a turn without model tokens (cut at once) goes to the last token
        written = [t for t in own if t < end]
        if written:
            paid[written[-1]] += reward
            rest -= reward
    paid[own[-1]] += rest
    # k1, the log-ratio itself: as a reward it is unbiased, and its sum over an answer is that answer's KL
    for t in own if beta else ():
        paid[t] -= beta * (logps[t] - ref[t])
    return paid


def advantages(
    rewards: Sequence[float],
    values: Sequence[float],
    mask: Sequence[int],
    *,
    gamma: float = 1.0,
    decay: float = 0.95,
    after: float = 0.0,
) -> list[float]:
    """A_t = d_t + gamma decay A_(t+1) with d_t = r_t + gamma V_(t+1) - V_t; `decay` is the lambda of the paper.

    `after` is the value after the last token: 0 if the answer ended, the critic's value if it was truncated.
    """
    found = [0.0] * len(mask)
    # backwards: each token needs the value and the advantage of the model's next token
    running, behind = 0.0, after
    for t in range(len(mask) - 1, -1, -1):
        if mask[t]:
            running = rewards[t] + gamma * behind - values[t] + gamma * decay * running
            behind = values[t]
            found[t] = running
    return found


def adaptive_decay(tokens: int) -> float:
    """VAPO's lambda for an answer with this many tokens: .5 at 40, .9 at 200, .98 at 1,000; never below 0."""
    return max(0.0, 1.0 - 1.0 / (ADAPTIVE * max(tokens, 1)))


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of some numbers; parts of a batch can be combined in any grouping."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Moments:
        """Of these numbers."""
        if not values:
            return cls()
        centre = math.fsum(values) / len(values)
        return cls(len(values), centre, math.fsum((v - centre) ** 2 for v in values))

    @classmethod
    def joined(cls, parts: Iterable[Moments]) -> Moments:
        """The moments of all parts together (Chan et al. 1983)."""
        whole = cls()
        for part in parts:
            n = whole.n + part.n
            if part.n:
                apart = part.mean - whole.mean
                mean = whole.mean + apart * part.n / n
                squares = whole.squares + part.squares + apart * apart * whole.n * part.n / n
                whole = cls(n, mean, squares)
        return whole

    @property
    def std(self) -> float:
        """With n - 1; 0 for fewer than two."""
        return math.sqrt(self.squares / (self.n - 1)) if self.n > 1 else 0.0

    @property
    def differ(self) -> bool:
        """Whether the numbers differ by more than rounding: the mean of equal numbers may be off in its last bit."""
        return self.std > 1e-12 * abs(self.mean)


def whitened(values: Sequence[float], mask: Sequence[int], whole: Moments) -> list[float]:
    """(value - mean) / std on the tokens that count, 0 elsewhere; all 0 where the batch has no spread."""
    if not whole.differ:
        return [0.0] * len(values)
    std = whole.std
    return [(v - whole.mean) / std if counts else 0.0 for v, counts in zip(values, mask, strict=True)]


def explained_variance(returns: Moments, errors: Moments) -> float | None:
    """1 - Var(return - value) / Var(return); None where the returns do not differ."""
    return 1.0 - errors.squares / returns.squares if returns.squares > 1e-12 and returns.differ else None


# The critic: the scale of its predictions, and its loss. Returns of .01 and of 100 would need different learning rates;
# normalised by their mean and spread they need only one.

SHARE = 0.1
"""Weight of a new batch in the unit's running averages."""
LEAST_STD = 1e-6
"""Smallest spread used: smaller ones are not scaled up."""


@dataclass(frozen=True)
class ReturnUnit:
    """The scale of a critic's predictions: x = (return - mean) / std, with exponential averages over batches (as in
    PopArt, van Hasselt et al. 2016, arXiv 1602.07714). An output of x is the value mean + std x."""

    mean: float = 0.0
    std: float = 1.0
    batches: int = 0
    """Number of batches averaged; the first one sets mean and std."""

    def after(self, returns: Moments) -> ReturnUnit:
        """The unit updated with another batch's returns, of all ranks; equal returns leave it unchanged."""
        if not returns.differ:
            return self
        share = SHARE if self.batches else 1.0
        mean = self.mean + share * (returns.mean - self.mean)
        std = self.std + share * (returns.std - self.std)
        return ReturnUnit(mean, max(std, LEAST_STD), self.batches + 1)

    def of(self, values: Tensor) -> Tensor:
        """Float64 values as float32 numbers of this unit; the shape stays."""
        return ((values.double() - self.mean) / self.std).float()

    def back(self, x: Tensor) -> Tensor:
        """Numbers of this unit as float64 values; the shape stays."""
        return self.mean + self.std * x.double()


class ValueLoss(NamedTuple):
    """(B, T) the loss of each token, 0 where the mask is 0; (B, T) whether the clipped value determines it."""

    loss_BT: Tensor
    clipped_BT: Tensor


def value_loss(values_BT: Tensor, old_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor, clip: float) -> ValueLoss:
    """.5 max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2) of each token (PPO's value clipping, as in OpenAI's
    baselines).

    If the clipped value is further from the return, the value has moved past its bounds towards the return and gets no
    gradient.
    """
    # the larger of the two losses: a value may move at most `clip` from its value before the update
    near_BT = torch.clamp(values_BT, old_BT - clip, old_BT + clip)
    plain_BT, bounded_BT = (values_BT - returns_BT).square(), (near_BT - returns_BT).square()
    mask_BT = mask_BT.to(values_BT.dtype)
    return ValueLoss(0.5 * torch.maximum(plain_BT, bounded_BT) * mask_BT, (bounded_BT > plain_BT) & mask_BT.bool())
