"""The run that `drive` saw beside the reference: rewards, advantages, gradients of all parameters, and what is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from tests.reference import world
from tests.reference.advantages import advantages_of, parts_of, rewards_of
from tests.reference.case import Case, Errors
from tests.reference.critic import Unit, Values, credited, value_loss, whitened
from tests.reference.drive import Seen
from tests.reference.formulas import Answer, Method, is_clipped, kl, mean, token_losses, weight
from tests.reference.policy import Plain, Said

T = TypeVar("T")


def compare(ranks: Sequence[Seen], case: Case) -> Errors:
    """The worst errors of a run; every rank's gradient is compared with the one reference gradient."""
    errors = Errors()
    model = Plain(ranks[0].config, case.temperature)
    start = ranks[0].updates[0].weights
    shown: dict[int, list[dict[str, float]]] = {}
    unit = Unit()
    for batch in range(len(ranks[0].said)):
        updates = [u for u in ranks[0].updates if u.batch == batch]
        if not updates:
            continue
        said = in_order(ranks, batch, [one for seen in ranks for one in seen.said[batch]])
        old = model.take(updates[0].weights).logps(said)
        ref = model.take(start).logps(said)
        records = ranks[0].records[batch]
        if case.credit is not None:
            pruned = [False] * len(said)
            advantages = of_critic(ranks, batch, said, old, ref, records, case, unit, errors)
        else:
            energy = list[list[float]]()
            if case.method.baseline == "token":
                energy = [model.take(updates[0].weights).energy(one) for one in said]
            advantages, pruned = advantages_of(said, old, ref, records, case, errors, energy)
        for at, update in enumerate(updates):
            micro = _micro(ranks, batch, at)
            model.take(update.weights)
            answers = _answers(model, said, old, ref, advantages, pruned, case)
            loss = _loss(answers, micro, case.method, case.parts)
            if case.credit is not None and case.credit.positive:
                loss = loss + case.credit.positive * _imitation(answers, micro, records, case.parts)
            want = model.gradient(loss)
            for seen in ranks:
                got = [u for u in seen.updates if u.batch == batch][at].gradients
                errors.take("gradient", apart(got, want))
            shown.setdefault(batch, []).append(_shown([answers[p] for rows in micro for p in rows], case))
    for batch, parts in shown.items():
        for name, key in (("kl", "kl"), ("clip", "clip/total"), ("entropy", "entropy")):
            known = [part[name] for part in parts if name in part]
            if known:
                got = ranks[0].metrics[batch].get(key)
                errors.take(name, math.inf if got is None else abs(got - mean(known)))
    return errors


def apart(got: dict[str, Tensor], want: dict[str, Tensor]) -> float:
    """Norm of the difference over the norm of the reference; of the difference alone where that is zero."""
    off = math.sqrt(sum(float((got[n].double() - w).square().sum()) for n, w in want.items()))
    whole = math.sqrt(sum(float(w.square().sum()) for w in want.values()))
    return off / whole if whole > 0 else off


def named(gradients: Sequence[Tensor]) -> dict[str, Tensor]:
    """By their place."""
    return {str(i): gradient for i, gradient in enumerate(gradients)}


def _micro(ranks: Sequence[Seen], batch: int, at: int) -> list[list[int]]:
    """Micro-batches of an optimizer step, as places in the whole batch."""
    found = []
    for seen in ranks:
        update = [u for u in seen.updates if u.batch == batch][at]
        found += [[seen.places[batch][row] for row in rows] for rows in update.micro]
    return found


def in_order(ranks: Sequence[Seen], batch: int, gathered: Sequence[T]) -> list[T]:
    """What the ranks have of their answers, one rank after the other, in the order of the whole batch."""
    places = [place for seen in ranks for place in seen.places[batch]]
    return [gathered[at] for at in sorted(range(len(places)), key=places.__getitem__)]


def of_critic(
    ranks: Sequence[Seen],
    batch: int,
    said: Sequence[Said],
    old: list[list[float]],
    ref: list[list[float]],
    records: list[dict[str, Any]],
    case: Case,
    unit: Unit,
    errors: Errors,
) -> list[list[float]]:
    """Of each token of the model, from a float64 critic of the same weights; its values, its losses and the gradients of its
    updates beside those of the run. `unit` is that of the batches before, and takes this one's returns."""
    assert case.credit is not None
    critic, seen = Values(ranks[0].config), [rank.valued[batch] for rank in ranks]
    with torch.no_grad():
        values = unit.values([critic.take(seen[0].weights).of(one).tolist() for one in said])
    got_values = in_order(ranks, batch, [row for one in seen for row in one.values])
    for answer, row, got in zip(said, values, got_values, strict=True):
        if not (case.mask_truncated and answer.cut):  # left out, also of what is attended to
            errors.take("value", max(abs(a - b) for a, b in zip(row, got, strict=True)))
    rewards = rewards_of(parts_of(said, records, case), [*case.weights, 1.0], records, errors)
    gains, returns = of_rows(said, values, old, ref, rewards, case)
    unit.take(returns)
    then, wanted = unit.of(values), unit.of(returns)
    white = iter(whitened([row for row in gains if row]))
    found = [next(white) if row else [0.0] * len(one.own) for row, one in zip(gains, said, strict=True)]
    for advantages, record, row in zip(found, records, gains, strict=True):
        errors.take("advantage", abs(record["advantage"] - mean(advantages)) if row or advantages else 0.0)
    losses: list[tuple[float, int]] = []
    for updates in zip(*(one.updates for one in seen), strict=True):
        rows = [rank.places[batch][row] for rank, update in zip(ranks, updates, strict=True) for row in update.rows]
        loss = value_loss(critic.take(updates[0].weights), said, rows, then, wanted, case.credit.clip)
        assert loss is not None
        added = [torch.stack(part).sum(0) for part in zip(*(u.gradients for u in updates), strict=True)]
        errors.take("value_gradient", apart(named(added), named(critic.gradient(loss))))
        losses.append((float(loss.detach()), sum(len(returns[i]) for i in rows)))
    whole = math.fsum(x * n for x, n in losses) / sum(n for _, n in losses)
    errors.take("loss", abs(whole - ranks[0].metrics[batch]["critic/loss"]))
    return found


def of_rows(
    said: Sequence[Said],
    values: Sequence[Sequence[float]],
    old: list[list[float]],
    ref: list[list[float]],
    rewards: Sequence[float],
    case: Case,
) -> tuple[list[list[float]], list[list[float]]]:
    """Advantages before whitening and returns of each answer; none of one without a verdict, or left out as cut."""
    assert case.credit is not None
    gains, returns = list[list[float]](), list[list[float]]()
    for one, value, reward, now, then in zip(said, values, rewards, old, ref, strict=True):
        if math.isnan(reward) or (case.mask_truncated and one.cut):
            near, far = list[float](), list[float]()
        else:
            beta = case.method.beta
            pull = [beta * (a - b) for a, b in zip(now, then, strict=True)]
            turns = [world.pays(one.answer[a:b]) for a, b in one.turns] if one.mask else []
            near, far = credited(one, reward, value, turns, pull, case.credit)
        gains.append(near)
        returns.append(far)
    return gains, returns


def _imitation(answers: list[Answer], micro: list[list[int]], records: list[dict[str, Any]], parts: int) -> Tensor:
    """VAPO's mean of -log p over the tokens of all right answers, of which an optimizer step has its share."""
    right = [
        answer.counts and record["verdicts"]["v"]["outcome"] == "right"
        for answer, record in zip(answers, records, strict=True)
    ]
    tokens = sum(len(answer.lp) for answer, ok in zip(answers, right, strict=True) if ok)
    here = [lp for rows in micro for place in rows if right[place] for lp in answers[place].lp]
    return -torch.stack([torch.zeros((), dtype=torch.float64), *here]).sum() * parts / max(tokens, 1)


def _answers(
    model: Plain,
    said: Sequence[Said],
    old: list[list[float]],
    ref: list[list[float]],
    advantages: list[list[float]],
    pruned: list[bool],
    case: Case,
) -> list[Answer]:
    found = []
    for one, o, r, a, out in zip(said, old, ref, advantages, pruned, strict=True):
        lp, entropy = model.tokens(one)
        counts = not (case.mask_truncated and one.cut) and not out
        found.append(Answer(list(lp), o, r, a, list(entropy), counts, out))
    return found


def _loss(answers: list[Answer], micro: list[list[int]], method: Method, parts: int) -> Tensor:
    """The objective of one optimizer step, to be minimised."""
    total = torch.zeros((), dtype=torch.float64)
    mates = {place: [answers[p] for p in rows] for rows in micro for place in rows}
    for place in sorted(mates):
        answer = answers[place]
        if answer.counts:
            factor = weight(answer, answers, mates[place], len(micro), method, parts)
            total = total + factor * torch.stack(token_losses(answer, method)).sum()
    if method.entropy:
        here = [h for place in mates if answers[place].counts for h in answers[place].entropy]
        tokens = sum(len(answer.entropy) for answer in answers if answer.counts)
        total = total - method.entropy * parts * torch.stack(here).sum() / tokens
    return total


def _shown(answers: list[Answer], case: Case) -> dict[str, float]:
    """Means over the tokens that count; the clip share of answer-level ratios is over answers."""
    method, counted = case.method, [a for a in answers if a.counts]
    out: dict[str, float] = {}
    if method.beta and method.estimator not in ("k1_reward", "k1_token"):
        name = "k3_corrected" if method.estimator == "k3_corrected" else "k3"
        out["kl"] = mean(
            [
                float(kl(name, lp.detach(), ref, torch.exp(lp.detach() - old)))
                for a in counted
                for lp, old, ref in zip(a.lp, a.old, a.ref, strict=True)
            ]
        )
    if not case.drops and counted:
        out["entropy"] = mean([float(h.detach()) for a in counted for h in a.entropy])
        # under `k1_reward` the sign of an advantage that ought to be 0 is one of rounding, and so is the clip's side
        if method.loss not in ("sapo", "vespo") and method.estimator != "k1_reward":
            one = method.ratio == "sequence" and method.loss != "gmpo"
            shares = [[float(c) for c in is_clipped(a, method)[: 1 if one else None]] for a in counted]
            out["clip"] = mean(
                [mean(own) for own in shares] if method.loss == "gmpo" else [c for own in shares for c in own]
            )
    return out
