"""From a batch's rewards and a critic's values to an advantage of each token. B rows of this rank, T completion tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from grpo_cli.algorithm.credit import Credit
from grpo_cli.algorithm.gae import (
    Moments,
    adaptive_decay,
    advantages,
    explained_variance,
    token_rewards,
    whitened,
)
from grpo_cli.recipe.sections.recipe import CriticSpec as Spec
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.critic.critic import ValueTarget


@dataclass(frozen=True)
class TokenKlPenalty:
    """The KL that each token pays: (B, T) log-probs of the policy that sampled and of the reference, and its weight."""

    beta: float
    logps_BT: Tensor
    ref_BT: Tensor


@dataclass(frozen=True)
class CriticCredit:
    """What came of a batch: (B, T) whitened advantages, what the critic should learn, the numbers to show, and the moments of
    the returns of all ranks."""

    advantages_BT: Tensor
    target: ValueTarget
    metrics: dict[str, float]
    returns: Moments


@dataclass
class _Row:
    paid: list[float]
    values: list[float]
    mask: list[int]
    gains: list[float]
    returns: list[float]


def critic_credit(
    spec: Spec,
    completions: Sequence[Completion],
    rewards: Sequence[float],
    values_BT1: Tensor,
    mask_BT: Tensor,
    pull: TokenKlPenalty | None,
    gathered: Callable[[Sequence[Moments]], list[Moments]],
) -> CriticCredit:
    """Advantages and returns of this rank's rows, whitened over the tokens of all ranks.

    Args:
        spec: lambda, gamma.
        completions: the rows, which may be episodes of several turns.
        rewards: one a row; NaN where there is no verdict: nothing is learned from it.
        values_BT1: (B, T + 1) as `Critic.values` gives them.
        mask_BT: 1 on the tokens that the model generated and that count.
        pull: the KL, if it is paid.
        gathered: what ranks say, of all of them in the same order.
    """
    device, known = mask_BT.device, torch.tensor([not math.isnan(r) for r in rewards], device=mask_BT.device)
    # a sample without a verdict is no lesson, of no advantage and of no value
    counted_BT = mask_BT * known[:, None].to(mask_BT)
    masks, kept = counted_BT.tolist(), values_BT1.tolist()
    logps, ref = ([], []) if pull is None else (pull.logps_BT.tolist(), pull.ref_BT.tolist())
    rows = [
        _row(
            spec,
            completion,
            reward,
            kept[i],
            [int(m) for m in masks[i]],
            (pull.beta, logps[i], ref[i]) if pull is not None else (0.0, [], []),
        )
        for i, (completion, reward) in enumerate(zip(completions, rewards, strict=True))
    ]
    whole, returns, shown = _measured(rows, gathered)
    white = [whitened(row.gains, row.mask, whole) for row in rows]
    target = ValueTarget(
        torch.tensor([row.returns for row in rows], dtype=torch.float64, device=device),
        values_BT1[:, :-1].double(),
        counted_BT,
    )
    return CriticCredit(torch.tensor(white, dtype=torch.float32, device=device), target, shown, returns)


def _row(
    spec: Spec,
    completion: Completion,
    reward: float,
    values: Sequence[float],
    mask: list[int],
    kl: tuple[float, list[float], list[float]],
) -> _Row:
    beta, logps, ref = kl
    turns = completion.episode.turns if completion.episode is not None else ()
    steps = [(turn.end, turn.reward) for turn in turns]
    # the value of going on in place of the outcome, never both: values that are paid to themselves run away
    goes_on = spec.cut == "value" and completion.finish == "length"
    # a cut episode keeps what its steps were paid; what stands for its end is the value behind it
    outcome = 0.0 if math.isnan(reward) else sum(r for _, r in steps) if goes_on else reward
    paid = token_rewards(outcome, mask, beta=beta, logps=logps, ref=ref, steps=steps)
    after = values[len(completion.token_ids)] if goes_on else 0.0
    own, tokens = list(values[:-1]), sum(mask)
    is_adaptive = spec.decay == "adaptive"
    decay = adaptive_decay(tokens) if isinstance(spec.decay, str) else spec.decay
    gains = advantages(paid, own, mask, gamma=spec.gamma, decay=decay, after=after)
    # VAPO: the critic learns from returns at lambda 1, which its own errors do not enter
    ahead = advantages(paid, own, mask, gamma=spec.gamma, decay=1.0, after=after) if is_adaptive else gains
    returns = [a + v if m else 0.0 for a, v, m in zip(ahead, own, mask, strict=True)]
    return _Row(paid, own, mask, gains, returns)


def _measured(
    rows: Sequence[_Row], gathered: Callable[[Sequence[Moments]], list[Moments]]
) -> tuple[Moments, Moments, dict[str, float]]:
    """The moments of all advantages of the batch and of all returns, and what is shown of it; one exchange between ranks."""

    def of(name: str) -> list[float]:
        return [x for row in rows for x, m in zip(getattr(row, name), row.mask, strict=True) if m]

    gains, returns, values = of("gains"), of("returns"), of("values")
    errors = [r - v for r, v in zip(returns, values, strict=True)]
    own = [Moments.of(part) for part in (gains, returns, values, errors)]
    said = gathered(own)
    # four a rank, one rank after the other
    whole_gains, whole_returns, whole_values, whole_errors = (Moments.joined(said[k::4]) for k in range(4))
    explained = explained_variance(whole_returns, whole_errors)
    shown = {
        "adv/mean": whole_gains.mean,
        "adv/std": whole_gains.std,
        "value/mean": whole_values.mean,
        "return/mean": whole_returns.mean,
    }
    shown |= {} if explained is None else {"critic/explained_variance": explained}
    return whole_gains, whole_returns, shown


@dataclass(frozen=True)
class SampleWorth:
    """Of one sample, for the records: its mean advantage and the sum of their sizes over its tokens, those of its tokens where
    it has turns, a value before each turn."""

    advantage: float
    pull: float
    of_tokens: list[float]
    values: list[float]


def worth_of(
    completions: Sequence[Completion], advantages_BT: Tensor, values_BT1: Tensor, mask_BT: Tensor
) -> list[SampleWorth]:
    """What this rank's samples came to; (B, T) advantages, 0 where `mask_BT` is, and (B, T + 1) values."""
    means = (advantages_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)).tolist()
    pulls = advantages_BT.abs().sum(dim=1).tolist()
    found = []
    for at, completion in enumerate(completions):
        turns = completion.episode.turns if completion.episode is not None else ()
        starts = [turn.start for turn in turns] or [0]
        tokens = advantages_BT[at, : len(completion.token_ids)].tolist() if turns else []
        found.append(SampleWorth(means[at], pulls[at], tokens, values_BT1[at, starts].tolist()))
    return found


def credit_of(before: Credit, worth: Sequence[SampleWorth]) -> Credit:
    """The credit of a whole batch with what the critic made of it, from the samples of all ranks."""
    P, G = before.A_PG.shape
    rows, pull = (
        torch.tensor(x).view(P, G) for x in zip(*((w.advantage, w.pull) for w in worth), strict=True)
    )
    width, A_PGT = max(len(one.of_tokens) for one in worth), None
    if width:
        padded = [one.of_tokens + [0.0] * (width - len(one.of_tokens)) for one in worth]
        A_PGT = torch.tensor(padded).view(P, G, width)
    values = [[one.values for one in worth[g * G : (g + 1) * G]] for g in range(P)]
    return replace(before, A_PG=rows, A_PGT=A_PGT, values=values, pull_PG=pull)
