"""A critic one answer at a time in float64: its values, advantages and returns of tokens from them, its loss and gradient.

Written from the papers (PPO, arXiv 1707.06347; GAE, arXiv 1506.02438; VAPO, arXiv 2504.05118), and beside them what two
libraries do with the same numbers, where they differ: verl and OpenRLHF.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from tests.reference.formulas import deviation, mean
from tests.reference.policy import Said


@dataclass(frozen=True)
class Credit:
    """The words of `train.critic` that change a formula."""

    decay: float | str = 0.95
    gamma: float = 1.0
    clip: float = 0.5
    cut: str = "outcome"
    positive: float = 0.0


@dataclass
class Unit:
    """Mean and deviation of returns as running averages over batches, a tenth of each the newest batch's; the first sets them
    (after PopArt, arXiv 1602.07714, whose second moment is a deviation here)."""

    centre: float = 0.0
    spread: float = 1.0
    known: bool = False

    def take(self, returns: Sequence[Sequence[float]]) -> None:
        """The returns of a batch's answers."""
        every = [r for row in returns for r in row]
        if len(every) > 1 and max(every) - min(every) > 1e-9:
            new = (mean(every), max(deviation(every, 1), 1e-6))
            old = (self.centre, self.spread) if self.known else new
            self.centre, self.spread = (0.9 * a + 0.1 * b for a, b in zip(old, new, strict=True))
            self.known = True

    def of(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """Values as deviations from the mean."""
        return [[(value - self.centre) / self.spread for value in row] for row in rows]

    def values(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """What such deviations stand for."""
        return [[self.centre + self.spread * x for x in row] for row in rows]


class Values:
    """Layers and a head in float64; `config` is the policy's, weights are given in the order in which a critic holds them."""

    def __init__(self, config: Any) -> None:
        made: Any = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        self.base: Any = made.base_model.double().eval()
        self.head = nn.Linear(int(config.get_text_config().hidden_size), 1).double()

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [*self.base.parameters(), *self.head.parameters()]

    def take(self, weights: Sequence[Tensor]) -> Values:
        """The same critic with these weights."""
        with torch.no_grad():
            for own, value in zip(self.parameters, weights, strict=True):
                own.copy_(value)
        return self

    def of(self, said: Said) -> Tensor:
        """(tokens of the answer + 1,) what the head says of what stands before each token, and of the whole, in its unit."""
        ids = torch.tensor([[*said.prompt, *said.answer]])
        states = self.base(input_ids=ids, use_cache=False).last_hidden_state[0]
        found: Tensor = self.head(states[len(said.prompt) - 1 :])[:, 0]
        return found

    def gradient(self, loss: Tensor) -> list[Tensor]:
        """Of every weight."""
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, found, strict=True)]


def paid(said: Said, reward: float, turns: Sequence[float], pull: Sequence[float], *, goes_on: bool) -> list[float]:
    """What each token of the model is paid: a turn's reward at its end, what they leave of the whole at the last token, less
    the KL of every token. An answer that goes on where it was cut is not paid for the end it has not come to."""
    own = said.own
    found = [0.0] * len(own)
    for (_, end), gain in zip(said.turns if turns else [], turns, strict=True):
        found[own.index(end - 1)] += gain
    if not goes_on:
        found[-1] += reward - math.fsum(turns)
    return [gain - off for gain, off in zip(found, pull, strict=True)]


def gae(rewards: Sequence[float], values: Sequence[float], after: float, gamma: float, decay: float) -> list[float]:
    """Each token's sum over what follows it of (gamma decay)^k times the surprise there (GAE, equation 16)."""
    ahead = [*values[1:], after]
    surprise = [r + gamma * v - own for r, v, own in zip(rewards, ahead, values, strict=True)]
    return [
        math.fsum((gamma * decay) ** (k - t) * surprise[k] for k in range(t, len(surprise)))
        for t in range(len(surprise))
    ]


def credited(
    said: Said, reward: float, values: Sequence[float], turns: Sequence[float], pull: Sequence[float], credit: Credit
) -> tuple[list[float], list[float]]:
    """Advantages before whitening, and returns, of the tokens of the model."""
    own = [values[t] for t in said.own]
    goes_on = credit.cut == "value" and said.cut
    rewards = paid(said, reward, turns, pull, goes_on=goes_on)
    after = values[len(said.answer)] if goes_on else 0.0
    if credit.decay == "adaptive":  # VAPO: 1 - 1 / (.05 tokens) for the policy, 1 for the critic
        near = gae(rewards, own, after, credit.gamma, max(0.0, 1 - 1 / (0.05 * len(own))))
        far = gae(rewards, own, after, credit.gamma, 1.0)
    else:
        near = far = gae(rewards, own, after, credit.gamma, float(credit.decay))
    return near, [a + v for a, v in zip(far, own, strict=True)]


def whitened(rows: Sequence[Sequence[float]], library: str = "") -> list[list[float]]:
    """All tokens of the batch to mean 0 and deviation 1, with n - 1; verl adds 1e-8 to the variance, OpenRLHF divides it by n."""
    every = [a for row in rows for a in row]
    centre, ddof = mean(every), 0 if library == "openrlhf" else 1
    variance = math.fsum((a - centre) ** 2 for a in every) / (len(every) - ddof)
    spread = math.sqrt(variance + (1e-8 if library == "verl" else 0.0))
    return [[(a - centre) / spread for a in row] for row in rows]


def library_gae(
    rewards: Sequence[float], values: Sequence[float], mask: Sequence[int], library: str, gamma: float, decay: float
) -> list[float]:
    """The recursions of the two over a row with its gaps: verl steps over what is masked, OpenRLHF takes its value for 0."""
    found, running, behind = [0.0] * len(mask), 0.0, 0.0
    for t in range(len(mask) - 1, -1, -1):
        if library == "verl" and not mask[t]:
            continue
        value = values[t] if mask[t] else 0.0
        running = (rewards[t] if mask[t] else 0.0) + gamma * behind - value + gamma * decay * running
        behind, found[t] = value, running
    return found


def value_losses(values: Tensor, old: Sequence[float], returns: Sequence[float], clip: float) -> Tensor:
    """(T,) half the larger of two squares: of the value, and of the value held near the old one."""
    then, wanted = (torch.tensor(x, dtype=torch.float64) for x in (old, returns))
    held = then + (values - then).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - wanted) ** 2, (held - wanted) ** 2)


def value_loss(
    model: Values,
    said: Sequence[Said],
    rows: Sequence[int],
    old: Sequence[Sequence[float]],
    returns: Sequence[Sequence[float]],
    clip: float,
) -> Tensor | None:
    """The mean over the tokens of these rows; None where none of them counts (`returns` of such a row are empty)."""
    found = [
        value_losses(model.of(said[i])[said[i].own], [old[i][t] for t in said[i].own], returns[i], clip)
        for i in rows
        if returns[i]
    ]
    return torch.cat(found).mean() if found else None
