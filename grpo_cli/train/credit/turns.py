"""From groups of episodes to what each of their tokens is worth: `train.credit`, put on the tokens of the turns.

An episode is compared with the others of its row only. What it is paid beside its steps (a score at its end, a verifier,
shaping) counts as paid at its last turn, so that its turns add up to its reward. Under a placebo the steps are paid nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import torch

from grpo_cli.algorithm.credit import TokenCredit
from grpo_cli.algorithm.spread import Span, spread
from grpo_cli.algorithm.turn_credit import Steps, gigpo, milestones, reached, subgoals
from grpo_cli.recipe.sections.recipe import Train, TurnCredit
from grpo_cli.reward.group import Group
from grpo_cli.rollout.engine import Completion, Turn

DISCOUNT = {"gigpo": 0.95, "milestones": 0.9, "planner": 1.0}
"""`gamma` where the recipe leaves it open."""


@dataclass(frozen=True)
class TurnParts:
    """The part of each turn of a batch, group by group and episode by episode, and what is worth showing of it."""

    parts: list[list[list[float]]]
    metrics: dict[str, float]


def turn_parts(train: Train, spec: TurnCredit, groups: Sequence[Group]) -> TurnParts:
    """What `train.credit` adds to the turns of these groups."""
    episodes = [_episodes(group, train.control is not None) for group in groups]
    find = {"gigpo": _gigpo, "milestones": _milestones, "planner": _planner}[spec.method]
    found = find(train, spec, groups, episodes)
    weighed = [[[spec.weight * part for part in row] for row in group] for group in found.parts]
    return TurnParts(weighed, found.metrics)


def token_credit(train: Train, groups: Sequence[Group], found: TurnParts) -> TokenCredit:
    """The parts of the turns on the tokens of their turns."""
    spec = train.credit
    assert spec is not None
    flat = [completion for group in groups for completion in group.completions]
    parts = [row for group in found.parts for row in group]
    on = partial(_tensor, groups=len(groups), width=max((len(c.token_ids) for c in flat), default=0))
    model = on([[(turn.start, turn.end, 1.0) for turn in turns(c)] for c in flat])
    if spec.method != "planner":
        values = [
            [(turn.start, turn.end, part) for turn, part in zip(turns(c), row, strict=True)]
            for c, row in zip(flat, parts, strict=True)
        ]
        counts = torch.tensor(
            [[len(turns(c)) for c in group.completions] for group in groups], dtype=torch.float64
        )
        return TokenCredit(model, model, on(values), counts if spec.over == "steps" else None)
    plans = on([[(turn.start, turn.start + turn.planned, 1.0) for turn in turns(c)] for c in flat])
    acts = [
        [(turn.start + turn.planned, turn.end, part) for turn, part in zip(turns(c), row, strict=True)]
        for c, row in zip(flat, parts, strict=True)
    ]
    # the sample's own advantage goes to its plans, that of subgoals to the acts between them
    return TokenCredit(model, plans, on(acts))


def turns(completion: Completion) -> Sequence[Turn]:
    """The turns of a completion; an answer without an episode is its marked parts, or a single turn."""
    if completion.episode is not None:
        return completion.episode.turns
    return completion.marks or (Turn(0, len(completion.token_ids)),)


def _tensor(rows: Sequence[Sequence[Span]], *, groups: int, width: int) -> torch.Tensor:
    return spread(rows, width).view(groups, -1, width)


def _episodes(group: Group, is_placebo: bool) -> list[Steps]:
    found = []
    for completion, reward in zip(group.completions, group.rewards, strict=True):
        own, known = turns(completion), not math.isnan(reward)
        # a placebo deals out outcomes by chance; what an environment paid for a step would tell them apart
        paid = [0.0 if is_placebo else turn.reward for turn in own]
        if known and paid:
            # so that the turns add up to the reward of the episode
            paid[-1] += reward - math.fsum(paid)
        found.append(Steps(paid, [turn.state for turn in own], [turn.milestone for turn in own], known))
    return found


Episodes = Sequence[Sequence[Steps]]


def _gigpo(train: Train, spec: TurnCredit, groups: Sequence[Group], episodes: Episodes) -> TurnParts:
    call = partial(
        gigpo,
        gamma=spec.gamma or DISCOUNT["gigpo"],
        norm=train.turn_norm,
        similarity=spec.similarity,
        floor=train.floor,
    )
    found = [call(group) for group in episodes]
    shared, anchors = sum(one.shared for one in found), sum(one.groups for one in found)
    seen = sum(one.turns for one in found)
    metrics = {"credit/anchor_share": shared / seen} if seen else {}
    if anchors:
        metrics["credit/anchor_size"] = shared / anchors
    return TurnParts([one.parts for one in found], metrics)


def _milestones(train: Train, spec: TurnCredit, groups: Sequence[Group], episodes: Episodes) -> TurnParts:
    call = partial(
        milestones,
        gamma=spec.gamma or DISCOUNT["milestones"],
        reward=spec.reward,
        order=spec.order,
        floor=train.floor,
    )
    return TurnParts([call(group) for group in episodes], _reach(spec, groups, episodes))


def _reach(spec: TurnCredit, groups: Sequence[Group], episodes: Episodes) -> dict[str, float]:
    """How many of the judged episodes reach each milestone, and how many of those that reach one are not right."""
    ends, right = [], []
    for group, own in zip(groups, episodes, strict=True):
        for steps, judged in zip(own, group.judgements, strict=True):
            if steps.known:
                ends.append(len(reached(steps, spec.order)))
                right.append(judged.is_right)
    most = max(1, len(spec.order), *ends) if ends else 0
    metrics = {
        f"credit/milestone_{k}/reached": fmean(float(n >= k) for n in ends) for k in range(1, most + 1)
    }
    won = [is_right for n, is_right in zip(ends, right, strict=True) if n]
    if won:
        metrics["credit/milestone_without_success"] = fmean(float(not is_right) for is_right in won)
    return metrics


def _planner(train: Train, spec: TurnCredit, groups: Sequence[Group], episodes: Episodes) -> TurnParts:
    call = partial(subgoals, norm=train.turn_norm, floor=train.floor)
    starts = [
        [_starts(c, steps) for c, steps in zip(group.completions, own, strict=True)]
        for group, own in zip(groups, episodes, strict=True)
    ]
    parts = [call(group, begins) for group, begins in zip(episodes, starts, strict=True)]
    counts = [float(len(begins)) for group in starts for begins in group]
    return TurnParts(parts, {"credit/subgoals": fmean(counts)} if counts else {})


def _starts(completion: Completion, steps: Steps) -> list[int]:
    """The turns at which a subgoal begins: where a plan stands; with one plan only, also behind each milestone."""
    plans = [number for number, turn in enumerate(turns(completion)) if turn.planned]
    if len(plans) > 1:
        return plans
    return sorted({*plans, *(end + 1 for end in reached(steps) if end + 1 < len(steps))} or {0})
