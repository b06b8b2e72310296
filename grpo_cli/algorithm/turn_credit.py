"""Credit for the turns of an episode: lists in, lists out, no tensors.

How this works. Each method is given all episodes of *one* row and returns, for each, a number a turn that is added to the
episode's own advantage (`p_it` of `algorithm/credit.py`; `train/credit.py` puts it on the tokens of the turn). All of them
compare a turn with turns that stood at the same place, and differ in what a place is:

    gigpo        the same state, in whichever episode     discounted return     GiGPO, arXiv 2505.10978
    milestones   the same segment between milestones      gamma^(turns left)    BEACON, arXiv 2605.06078
    subgoals     the k-th subgoal of an episode           its turns' rewards    after HiPER, arXiv 2602.16165

    p = (value - mean of the place) / (std of the place + 1e-6), or without the division

Edge cases: an episode without a verdict (`known` False) is in no mean and gets zeros. A turn that differs from nothing it is
compared with gets exactly 0, as rounding would otherwise invent a signal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

Norm = Literal["mean", "std"]

EPSILON = 1e-6
"""Added to a standard deviation, as GiGPO's code does."""

ROUNDING = 2**-50
"""A spread below this share of the largest value is none: returns that ought to be equal are added up in other orders."""


@dataclass(frozen=True)
class Steps:
    """One episode as input of credit: a reward, a state and perhaps a milestone a turn; `known`: it has a verdict."""

    rewards: Sequence[float]
    states: Sequence[str] = ()
    milestones: Sequence[str | None] = ()
    known: bool = True

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Anchors:
    """The step part of GiGPO. `share` of the turns stand in groups of two or more, of `size` turns on average."""

    parts: list[list[float]]
    shared: int
    groups: int
    turns: int


def returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """What each turn and all that follow are paid, each later turn discounted by `gamma` once more: G_t = r_t + gamma
    G_(t+1)."""
    found, after = [], 0.0
    for reward in reversed(rewards):
        after = reward + gamma * after
        found.append(after)
    return found[::-1]


def gigpo(
    episodes: Sequence[Steps],
    *,
    gamma: float = 0.95,
    norm: Norm = "mean",
    similarity: float | None = None,
    floor: float = EPSILON,
) -> Anchors:
    """GiGPO's step part (arXiv 2505.10978, section on anchor state grouping): each turn's discounted return less the mean
    over all turns that saw the same state, in whichever episode; 0 for a state seen once.

    Args:
        episodes: of one row; a loop puts several turns of one episode into one group.
        gamma: discount a turn.
        norm: `std` divides by the group's standard deviation (n - 1).
        similarity: states this much alike (difflib's ratio) as the first of a group belong to it; None: equal ones.
        floor: a spread below this is none.
    """
    # state -> (episode, turn) of all that saw it; in order of appearance, so that ties do not depend on hashing
    groups: dict[str, list[tuple[int, int]]] = {}
    gains = [returns(episode.rewards, gamma) for episode in episodes]
    for number, episode in enumerate(episodes):
        for turn, state in enumerate(episode.states) if episode.known else ():
            anchor = state
            if similarity is not None and state not in groups:
                alike = (one for one in groups if SequenceMatcher(None, one, state).ratio() >= similarity)
                anchor = next(alike, state)
            groups.setdefault(anchor, []).append((number, turn))
    parts = [[0.0] * len(episode) for episode in episodes]
    for places in groups.values():
        compared = normalised([gains[i][t] for i, t in places], norm, floor)
        for (number, turn), value in zip(places, compared, strict=True):
            parts[number][turn] = value
    shared = [places for places in groups.values() if len(places) > 1]
    return Anchors(parts, sum(map(len, shared)), len(shared), sum(map(len, groups.values())))


def normalised(values: Sequence[float], norm: Norm, floor: float = EPSILON) -> list[float]:
    """Values less their mean, over their standard deviation (n - 1) where `norm` is set to it; zeros where they do not
    spread."""
    # one value was compared with nothing
    if len(values) < 2:
        return [0.0] * len(values)
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    if spread < max(floor, ROUNDING * max(map(abs, values))):
        return [0.0] * len(values)
    over = spread + EPSILON if norm == "std" else 1.0
    return [(v - mean) / over for v in values]


def reached(episode: Steps, order: Sequence[str] = ()) -> list[int]:
    """The turns at which segments end: the first time that each milestone is reached.

    With an `order` only its names count, each not before the one ahead of it.
    """
    found, seen = list[int](), set[str]()
    for turn, name in enumerate(episode.milestones):
        if name is None or name in seen:
            continue
        if order and (len(found) == len(order) or name != order[len(found)]):
            continue
        seen.add(name)
        found.append(turn)
    return found


def segments(length: int, ends: Sequence[int]) -> list[int]:
    """The segment of each turn: k until the k-th milestone is reached, its turn included; the tail is the next one."""
    return [sum(end < turn for end in ends) for turn in range(length)]


def milestones(
    episodes: Sequence[Steps],
    *,
    gamma: float = 0.9,
    reward: float = 1.0,
    order: Sequence[str] = (),
    floor: float = EPSILON,
) -> list[list[float]]:
    """BEACON's segment part (arXiv 2605.06078, and its `core_migpo.py`): inside a segment that ends in a milestone a turn
    is worth `reward` x gamma^(turns until then), in the unfinished tail 0, less the mean over all turns of all episodes in
    the segment of that number, tails among them: they carry the failure.
    """
    # the nearer a turn is to its milestone, the more it is worth; a tail that reached none is worth 0
    shaped, where = [], []
    for episode in episodes:
        ends = reached(episode, order)
        place = segments(len(episode), ends)
        where.append(place)
        shaped.append([reward * gamma ** (ends[k] - t) if k < len(ends) else 0.0 for t, k in enumerate(place)])
    return _compared(episodes, shaped, where, "mean", floor)


def subgoals(
    episodes: Sequence[Steps], starts: Sequence[Sequence[int]], *, norm: Norm = "std", floor: float = EPSILON
) -> list[list[float]]:
    """The executor's part of planner and executor (after HiPER, arXiv 2602.16165, whose code is not public): the k-th
    subgoal of an episode is worth what its own turns are paid, compared with the k-th subgoals of the other episodes.

    `starts` are the turns of each episode at which a subgoal begins; a number a turn comes back, its subgoal's.
    """
    # once an episode, not once a turn: a long subgoal must not weigh more in the mean of its place
    paid = list[dict[int, float]]()
    where = list[list[int]]()
    for episode, begins in zip(episodes, starts, strict=True):
        place = [max(sum(begin <= turn for begin in begins) - 1, 0) for turn in range(len(episode))]
        where.append(place)
        own: dict[int, list[float]] = {}
        for turn, k in enumerate(place):
            own.setdefault(k, []).append(episode.rewards[turn])
        paid.append({k: math.fsum(values) for k, values in own.items()})
    parts = [[0.0] * len(episode) for episode in episodes]
    for k in sorted({k for own in paid for k in own}):
        members = [i for i, own in enumerate(paid) if k in own and episodes[i].known]
        for i, value in zip(members, normalised([paid[i][k] for i in members], norm, floor), strict=True):
            parts[i] = [value if at == k else part for at, part in zip(where[i], parts[i], strict=True)]
    return parts


def _compared(
    episodes: Sequence[Steps],
    values: Sequence[Sequence[float]],
    where: Sequence[Sequence[int]],
    norm: Norm,
    floor: float,
) -> list[list[float]]:
    """Each turn's value compared with those of all turns at the same place."""
    groups: dict[int, list[tuple[int, int]]] = {}
    for number, places in enumerate(where):
        for turn, k in enumerate(places) if episodes[number].known else ():
            groups.setdefault(k, []).append((number, turn))
    parts = [[0.0] * len(episode) for episode in episodes]
    for members in groups.values():
        compared = normalised([values[i][t] for i, t in members], norm, floor)
        for (number, turn), value in zip(members, compared, strict=True):
            parts[number][turn] = value
    return parts
