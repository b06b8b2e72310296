"""Rewards and advantages by the formulas, from the texts of the answers, held against what the run wrote down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from grpo_cli.policy.model import byte_tokenizer
from tests.reference import world
from tests.reference.case import Case, Errors
from tests.reference.drive import scores
from tests.reference.formulas import (
    gigpo,
    group_advantages,
    hras,
    is_dead,
    kept_places,
    mean,
    normalise_then_sum,
    overlong,
    token_baseline,
)
from tests.reference.policy import Said


def parts_of(said: Sequence[Said], records: list[dict[str, Any]], case: Case) -> list[list[float]]:
    """What each verifier pays each answer, and the shaping, from their texts."""
    texts = byte_tokenizer().batch_decode([one.answer for one in said], skip_special_tokens=True)
    return [
        [*scores(text, record["kind"])[: len(case.weights)], _shaping(one, case)]
        for text, record, one in zip(texts, records, said, strict=True)
    ]


def rewards_of(
    parts: list[list[float]], weights: list[float], records: list[dict[str, Any]], errors: Errors
) -> list[float]:
    """Of each answer, compared with what the run wrote down."""
    rewards = [math.fsum(w * part for w, part in zip(weights, row, strict=True) if w) for row in parts]
    for reward, record in zip(rewards, records, strict=True):
        missing = record["reward"] is None
        if missing or math.isnan(reward):
            errors.take("reward", 0.0 if missing and math.isnan(reward) else math.inf)
        else:
            errors.take("reward", abs(record["reward"] - reward))
    return rewards


def advantages_of(
    said: Sequence[Said],
    old: list[list[float]],
    ref: list[list[float]],
    records: list[dict[str, Any]],
    case: Case,
    errors: Errors,
    energy: list[list[float]],
) -> tuple[list[list[float]], list[bool]]:
    """Of each token of the model, by the formulas, from the texts, and who is pruned; the first compared with what the run
    wrote down."""
    parts = parts_of(said, records, case)
    weights = [*case.weights, 1.0]
    rewards = rewards_of(parts, weights, records, errors)
    size, method = case.group, case.method
    judged = [rewards[i : i + size] for i in range(0, len(rewards), size)]
    if method.estimator == "k1_reward" and method.beta:
        rewards = [
            r - method.beta * math.fsum(a - b for a, b in zip(lp, base, strict=True))
            for r, lp, base in zip(rewards, old, ref, strict=True)
        ]
    starts = range(0, len(rewards), size)
    pruned = [False] * len(rewards)
    if case.keep is not None and case.by == "variance":
        pruned = _pruned([rewards[i : i + size] for i in starts], case)
        rewards = [math.nan if out else r for r, out in zip(rewards, pruned, strict=True)]
    if case.normalises:
        grouped = normalise_then_sum([parts[i : i + size] for i in starts], weights, method)
    elif case.split:
        grouped = hras([[row[:2] for row in parts[i : i + size]] for i in starts], case.split, method)
    else:
        lengths = [[len(one.own) for one in said[i : i + size]] for i in starts]
        grouped = group_advantages([rewards[i : i + size] for i in starts], method, lengths)
    if method.scale == "group":  # a group whose judged rewards are equal teaches nothing, whatever its KL is
        dead = [is_dead(group, method.floor, method.ddof) and not case.normalises for group in judged]
        grouped = [[0.0] * size if d else group for d, group in zip(dead, grouped, strict=True)]
    if case.keep is not None and case.by == "advantage":
        pruned = _pruned(grouped, case)
    whole = [0.0 if out else a for a, out in zip((a for group in grouped for a in group), pruned, strict=True)]
    if energy:
        found = [row for i in starts for row in token_baseline(judged[i // size], energy[i : i + size], method)]
    elif case.gamma is None:
        found = [[a] * len(one.own) for a, one in zip(whole, said, strict=True)]
    else:
        found = _of_turns(said, [r for group in judged for r in group], whole, records, case, errors)
    for advantages, record in zip(found, records, strict=True):
        errors.take("advantage", abs(record["advantage"] - mean(advantages)))
    return found, pruned


def _pruned(groups: Sequence[Sequence[float]], case: Case) -> list[bool]:
    """For each sample, whether `train.prune` leaves it out."""
    assert case.keep is not None
    kept = [kept_places(group, case.keep, case.by) for group in groups]
    return [i not in places for group, places in zip(groups, kept, strict=True) for i in range(len(group))]


def _of_turns(
    said: Sequence[Said],
    rewards: Sequence[float],
    whole: Sequence[float],
    records: Sequence[dict[str, Any]],
    case: Case,
    errors: Errors,
) -> list[list[float]]:
    """The same where each turn has an advantage of its own; a KL is taken off the episode's reward, not off its steps'."""
    found: list[list[float]] = []
    for i in range(0, len(said), case.group):
        group = said[i : i + case.group]
        known = [not math.isnan(r) for r in rewards[i : i + case.group]]
        paid = [[world.pays(one.answer[a:b]) for a, b in one.turns] for one in group]
        for row, reward, ok in zip(paid, rewards[i : i + case.group], known, strict=True):
            if ok:
                row[-1] += reward - math.fsum(row)
        assert case.gamma is not None
        parts = gigpo(paid, [world.states(one) for one in group], known, case.gamma, case.divides)
        for one, own, part in zip(group, whole[i : i + case.group], parts, strict=True):
            turns = [own + value for value in part]
            record = records[len(found)]
            for turn, value in zip(record["turns"], turns, strict=True):
                errors.take("advantage", abs(turn["advantage"] - value))
            found.append([a for a, (start, end) in zip(turns, one.turns, strict=True) for _ in range(start, end)])
    return found


def _shaping(one: Said, case: Case) -> float:
    return overlong(len(one.own), case.max_tokens, case.overlong) if case.overlong else 0.0
