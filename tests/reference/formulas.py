"""Advantages, KL estimates and losses, written from the papers for one answer at a time.

Numbers are plain floats or float64 scalars of torch (which carry the graph); there is no batch, no padding, no mask.
A reward of NaN is "no verdict". `Method` says in the recipe's words which formula is meant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

NAN = math.nan


@dataclass(frozen=True)
class Method:
    """What an update is: the words of a recipe's `train` section that change a formula."""

    loss: str = "dapo"
    ratio: str = "token"
    baseline: str = "mean"
    scale: str = "group"
    ddof: int = 1
    floor: float = 1e-6
    clip_low: float = 0.2
    clip_high: float = 0.2
    cap: float | None = None
    beta: float = 0.0
    estimator: str = "k3_corrected"
    max_tokens: int = 1
    entropy: float = 0.0
    bound: str = "ratio"
    delta: float = 0.0
    pull: float = 0.0
    best_of: int | None = None


def mean(values: Sequence[float]) -> float:
    """The plain mean."""
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float], ddof: int) -> float:
    """The standard deviation with n - ddof below the line."""
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / max(len(values) - ddof, 1))


def _known(values: Sequence[float]) -> list[float]:
    return [v for v in values if not math.isnan(v)]


def is_dead(rewards: Sequence[float], floor: float, ddof: int) -> bool:
    """Whether a group teaches nothing: fewer than two rewards, or rewards that do not differ."""
    known = _known(rewards)
    return len(known) < 2 or deviation(known, ddof) < floor


def group_advantages(
    groups: Sequence[Sequence[float]], method: Method, lengths: Sequence[Sequence[int]] = ()
) -> list[list[float]]:
    """Advantages of each sample of each group, of which the samples are so long.

    GRPO: (r - mean) / std of the group (DeepSeekMath, arXiv 2402.03300, outcome supervision). Dr. GRPO: r - mean (arXiv
    2503.20783). REINFORCE++-baseline: r - mean of the group, over the std of the whole batch (arXiv
    2501.03262). RLOO: r - mean of the other samples (arXiv 2402.14740). MaxRL: (r - mean) / mean (arXiv 2602.02710). OPO: r -
    mean weighted by length (arXiv 2505.23585).
    """
    if method.baseline == "leave_one_out":
        return [_leave_one_out(group, method) for group in groups]
    if method.baseline == "pass_k":
        return [_best_of(group, method) for group in groups]
    if method.baseline == "length":
        return [_opo(group, own, method) for group, own in zip(groups, lengths, strict=True)]
    centred = [[r - mean(_known(g)) if _known(g) else NAN for r in g] for g in groups]
    every = [c for group in centred for c in _known(group)]
    batch = math.sqrt(math.fsum(c * c for c in every) / max(len(every) - method.ddof, 1)) if every else 0.0
    found = []
    for rewards, group in zip(groups, centred, strict=True):
        dead = is_dead(rewards, method.floor, method.ddof)
        over = {"group": 1.0 if dead else deviation(_known(rewards), method.ddof), "batch": batch, "none": 1.0}
        over["mean"] = 1.0 if dead else mean(_known(rewards))
        found.append([0.0 if dead or math.isnan(c) else c / over[method.scale] for c in group])
    return found


def _leave_one_out(rewards: Sequence[float], method: Method) -> list[float]:
    if is_dead(rewards, method.floor, method.ddof):
        return [0.0] * len(rewards)
    found = []
    for i, reward in enumerate(rewards):
        others = _known([r for j, r in enumerate(rewards) if j != i])
        found.append(0.0 if math.isnan(reward) else reward - mean(others))
    return found


def _opo(rewards: Sequence[float], lengths: Sequence[int], method: Method) -> list[float]:
    if is_dead(rewards, method.floor, method.ddof):
        return [0.0] * len(rewards)
    known = [(r, n) for r, n in zip(rewards, lengths, strict=True) if not math.isnan(r)]
    base = math.fsum(r * n for r, n in known) / sum(n for _, n in known)
    return [0.0 if math.isnan(r) else r - base for r in rewards]


def _best_of(rewards: Sequence[float], method: Method) -> list[float]:
    """Every subset, one after the other: what its best gets, over all subsets and over those that hold a sample."""
    assert method.best_of is not None
    known = [i for i, r in enumerate(rewards) if not math.isnan(r)]
    subsets = list(combinations(known, method.best_of))
    best = [max(rewards[i] for i in own) for own in subsets]
    if not best or deviation(best, 0) < method.floor:
        return [0.0] * len(rewards)
    centre, spread = mean(best), deviation(best, 0)
    with_it = [[b for own, b in zip(subsets, best, strict=True) if i in own] for i in range(len(rewards))]
    return [(mean(own) - centre) / spread if own else 0.0 for own in with_it]


def token_baseline(rewards: Sequence[float], energy: Sequence[Sequence[float]], method: Method) -> list[list[float]]:
    """The optimal token baseline (arXiv 2602.07078, and verl): r - B_t with B_t the mean of the rewards of the answers that go on at t,
    weighted by the energy 1 - 2 p + sum p^2 that they have spent by then."""
    dead, found = is_dead(rewards, method.floor, method.ddof), []
    spent = [[math.fsum(row[: t + 1]) for t in range(len(row))] for row in energy]
    for reward, row in zip(rewards, spent, strict=True):
        if dead or math.isnan(reward):
            found.append([0.0] * len(row))
            continue
        own = []
        for t in range(len(row)):
            there = [(r, w[t]) for r, w in zip(rewards, spent, strict=True) if t < len(w) and not math.isnan(r)]
            own.append(reward - math.fsum(r * w for r, w in there) / math.fsum(w for _, w in there))
        found.append(own)
    return found


def normalise_then_sum(
    groups: Sequence[Sequence[Sequence[float]]], weights: Sequence[float], method: Method
) -> list[list[float]]:
    """GDPO (arXiv 2601.05242): each reward normalised in its group, summed by weight, then over the batch.

    A sample that lacks a verdict of any part has no total, so it is in none of the parts' means either.
    """
    totals: list[list[float]] = []
    for group in groups:
        whole = [all(not math.isnan(part) for part in sample) for sample in group]
        total = [0.0 if ok else NAN for ok in whole]
        for k, weight in enumerate(weights):
            column = [sample[k] if ok else NAN for sample, ok in zip(group, whole, strict=True)]
            part = group_advantages([column], Method(ddof=method.ddof, floor=method.floor))[0]
            total = [t + weight * p for t, p in zip(total, part, strict=True)]
        totals.append(total)
    every = [t for total in totals for t in _known(total)]
    centre, spread = (mean(every), deviation(every, method.ddof)) if every else (0.0, 0.0)
    if spread < method.floor:
        return [[0.0] * len(total) for total in totals]
    return [[0.0 if math.isnan(t) else (t - centre) / spread for t in total] for total in totals]


def hras(groups: Sequence[Sequence[Sequence[float]]], weights: Sequence[float], method: Method) -> list[list[float]]:
    """HRAS (arXiv 2606.14691) of a reward and one further score a sample: each over its own deviation in the group.

    Where the rewards do not differ there is nothing; without a reward a sample is out of both, without a score out of the second.
    """
    found = []
    for group in groups:
        task = [sample[0] for sample in group]
        if is_dead(task, method.floor, method.ddof):
            found.append([0.0] * len(group))
            continue
        form = [NAN if math.isnan(sample[0]) else sample[1] for sample in group]
        first, second = (group_advantages([column], method)[0] for column in (task, form))
        found.append([weights[0] * a + weights[1] * b for a, b in zip(first, second, strict=True)])
    return found


def kept_places(values: Sequence[float], keep: int, by: str) -> set[int]:
    """Which samples of a group pruning leaves: the largest advantages (CPPO, arXiv 2503.22342), the earlier of equals, or
    the subset whose rewards vary most (PODS, arXiv 2504.13818); of such subsets the one with the most high rewards, of
    equal rewards the earlier low and the later high ones."""
    if by == "advantage":
        return set(sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:keep])
    known = sorted((i for i, v in enumerate(values) if not math.isnan(v)), key=lambda i: values[i])
    lost = [i for i in range(len(values)) if i not in known]
    size = min(keep, len(known))
    if not size:
        return set(lost[:keep])

    def spread(places: Sequence[int]) -> float:
        return round(deviation([values[i] for i in places], 0), 9)

    ends = [known[: size - high] + known[len(known) - high :] for high in range(size + 1)]
    best = max(reversed(ends), key=spread)
    assert spread(best) == max(spread(places) for places in combinations(known, size))
    return set(best) | set(lost[: keep - size])


def gigpo(
    rewards: Sequence[Sequence[float]],
    states: Sequence[Sequence[str]],
    known: Sequence[bool],
    gamma: float,
    divides: bool,
) -> list[list[float]]:
    """What each turn of the episodes of one task is worth beside its episode (GiGPO, arXiv 2505.10978): its discounted
    return less the mean return of all turns of all episodes that started from the same state, where asked over their
    deviation (to which the authors' code adds 1e-6); nothing where it is alone.
    """
    gains = [
        [math.fsum(gamma**later * r for later, r in enumerate(row[t:])) for t in range(len(row))] for row in rewards
    ]

    def alike(state: str) -> list[float]:
        return [
            gain
            for row, seen, ok in zip(gains, states, known, strict=True)
            for gain, other in zip(row, seen, strict=True)
            if ok and other == state
        ]

    return [
        [
            (gain - mean(alike(state))) / (deviation(alike(state), 1) + 1e-6 if divides else 1.0)
            if ok and max(alike(state)) - min(alike(state)) > 1e-9
            else 0.0
            for gain, state in zip(row, seen, strict=True)
        ]
        for row, seen, ok in zip(gains, states, known, strict=True)
    ]


def overlong(tokens: int, most: int, cache: float) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476): 0, then linear to -1 over the last `cache` of the cap."""
    room = cache * most
    if tokens <= most - room:
        return 0.0
    return (most - room - tokens) / room if tokens <= most else -1.0


def kl(estimator: str, lp: Tensor, ref: float, ratio: Tensor | float) -> Tensor:
    """KL at one token: k1, k2, k3 (Schulman 2020; k3 is DeepSeekMath's estimator), k3 times the ratio (DeepSeek-V3.2's unbiased one)."""
    apart = lp - ref
    if estimator in ("k1_loss", "k1_reward", "k1_token"):
        return apart
    if estimator == "k2":
        return apart * apart / 2
    k3 = torch.exp(-apart) + apart - 1
    return k3 * ratio if estimator == "k3_corrected" else k3


@dataclass
class Answer:
    """One sampled answer: log-probs of its tokens now (with graph), when it was sampled, and under the reference, and what
    each of them is worth. What an environment said between its turns is not in it."""

    lp: list[Tensor]
    old: list[float]
    ref: list[float]
    advantage: list[float]
    entropy: list[Tensor] = field(default_factory=list)
    counts: bool = True
    """False for a cut answer under `mask_truncated` (DAPO's overlong filtering): its tokens leave the loss."""
    pruned: bool = False
    """Left out as if it had not been sampled: neither in the loss nor in the number of answers."""


def ratios(answer: Answer, method: Method) -> list[Tensor]:
    """The ratio that each token is weighed with.

    A token's own (PPO, arXiv 1707.06347), the whole answer's, length-normalised (GSPO, arXiv 2507.18071), or that of its
    token variant, whose value is the answer's and whose gradient is the token's.
    """
    logs = [lp - old for lp, old in zip(answer.lp, answer.old, strict=True)]
    if method.ratio == "token":
        return [torch.exp(log) for log in logs]
    whole = torch.exp(sum(logs, torch.zeros((), dtype=torch.float64)) / len(logs))
    if method.loss == "gmpo":
        held = gmpo_logs(answer, method)
        return [torch.exp(sum(held, torch.zeros((), dtype=torch.float64)) / len(held))] * len(held)
    if method.ratio == "sequence":
        return [whole] * len(logs)
    return [whole.detach() * torch.exp(lp - lp.detach()) for lp in answer.lp]


def gmpo_logs(answer: Answer, method: Method) -> list[Tensor]:
    """GMPO's log ratios (arXiv 2507.20673): cut off where they run with the advantage, left alone against it."""
    found = []
    for lp, old, a in zip(answer.lp, answer.old, answer.advantage, strict=True):
        log = lp - old
        far = float(log.detach()) > method.clip_high if a > 0 else float(log.detach()) < -method.clip_low
        found.append(torch.tensor(method.clip_high if a > 0 else -method.clip_low, dtype=torch.float64) if far else log)
    return found


def is_masked(now: float, old: float, a: float, bound: str, delta: float) -> bool:
    """Whether DPPO (arXiv 2602.04879) leaves a token out: it moved too far with its advantage, by the difference of its probabilities or
    by the divergence of the two coins."""
    p, q = math.exp(now), math.exp(old)
    if (p - q) * a <= 0:
        return False
    if bound == "tv":
        return abs(p - q) > delta
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)) > delta


def token_losses(answer: Answer, method: Method) -> list[Tensor]:
    """What each token of an answer adds, before any mean: policy term and KL term."""
    found = []
    said = zip(ratios(answer, method), answer.lp, answer.old, answer.ref, answer.advantage, strict=True)
    for ratio, lp, old, ref, a in said:
        if method.loss == "cispo":  # CISPO in MiniMax-M1, arXiv 2506.13585; no lower bound
            assert method.cap is not None
            term = -min(float(ratio.detach()), method.cap) * a * lp
        elif method.loss == "sapo":  # the soft gate of arXiv 2511.20347
            tau = 1.0 if a > 0 else 1.05
            term = -a * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
        elif (
            method.loss == "vespo"
        ):  # arXiv 2602.10693: w^k exp(k' (1 - w)) of the whole answer's ratio, without a gradient
            w = math.exp(math.fsum(float(now.detach()) - then for now, then in zip(answer.lp, answer.old, strict=True)))
            k, decay = (2.0, 3.0) if a >= 0 else (3.0, 2.0)
            term = -(w**k) * math.exp(decay * (1 - w)) * a * lp
        elif method.loss == "gmpo":
            term = -ratio * a
        elif method.bound != "ratio":
            log = lp - old
            out = is_masked(float(lp.detach()), old, a, method.bound, method.delta)
            term = method.pull * log * log - (0.0 if out else a) * ratio
        else:  # PPO's clipped surrogate, arXiv 1707.06347; DAPO's two bounds, arXiv 2503.14476
            low, high = 1 - method.clip_low, 1 + method.clip_high
            r = float(ratio.detach())
            bounded = min(max(r, low), high)
            term = -(ratio * a if r * a <= bounded * a else torch.tensor(bounded * a, dtype=torch.float64))
        if method.beta and method.estimator not in ("k1_reward", "k1_token"):
            term = term + method.beta * kl(method.estimator, lp, ref, ratio)
        found.append(term)
    return found


def is_clipped(answer: Answer, method: Method) -> list[bool]:
    """For each token, whether the clip has taken its gradient away (for CISPO: whether its weight is capped)."""
    out = []
    if method.loss == "gmpo":
        return [not log.requires_grad for log in gmpo_logs(answer, method)]
    for ratio, lp, old, a in zip(ratios(answer, method), answer.lp, answer.old, answer.advantage, strict=True):
        r = float(ratio.detach())
        if method.bound != "ratio":
            out.append(is_masked(float(lp.detach()), old, a, method.bound, method.delta))
            continue
        if method.loss == "cispo":
            out.append(method.cap is not None and a > 0 and r > method.cap)
        else:
            out.append((a < 0 and r < 1 - method.clip_low) or (a > 0 and r > 1 + method.clip_high))
    return out


def weight(
    answer: Answer, batch: Sequence[Answer], mates: Sequence[Answer], batches: int, method: Method, parts: int = 1
) -> float:
    """What a token of `answer` is multiplied with before everything is summed.

    grpo, sapo, gspo: mean over answers of the mean over tokens (DeepSeekMath). dapo, cispo, vespo: mean over all tokens
    (DAPO). dr_grpo: a constant length (Dr. GRPO). luspo: mean over answers of their sum (LUSPO, arXiv 2602.05261).
    bnpo: mean over the tokens of its micro-batch (`mates`), of which there are `batches`.

    Where the batch is used up in several mini-batches (`parts`), each is normalised by what one of them holds on average, so
    that a token weighs the same in all.
    """
    n = sum(not b.pruned for b in batch) / parts
    if method.loss in ("grpo", "sapo", "gmpo"):
        return 1 / (n * len(answer.lp))
    if method.loss == "luspo":
        return 1 / n
    if method.loss == "dr_grpo":
        return 1 / (n * method.max_tokens)
    if method.loss == "bnpo":
        return 1 / (max(sum(len(m.lp) for m in mates if m.counts), 1) * batches)
    return parts / sum(len(b.lp) for b in batch if b.counts)
