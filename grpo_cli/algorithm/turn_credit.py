"""Credit for the turns of an episode: lists in, lists out, no tensors.

How this works. Each method gets all episodes of *one* row and returns one number a turn, which is added to the
episode's own advantage (`p_it` of `algorithm/credit.py`; `train/credit.py` puts it on the tokens of the turn). Each
compares a turn with other turns at the same place. They differ in the definition of a place:

    gigpo        the same state, in whichever episode     discounted return     GiGPO, arXiv 2505.10978
    milestones   the same segment between milestones      gamma^(turns left)    BEACON, arXiv 2605.06078
    subgoals     the k-th subgoal of an episode           its turns' rewards    after HiPER, arXiv 2602.16165

    p = (value - mean of the place) / (std of the place + 1e-6), or without the division

`cut_weights` and `cut_values` need no place to compare with: they divide what one answer gained among its own segments
(RREDCoT, arXiv 2606.06475).

Edge cases: an episode without a verdict (`known` False) is in no mean and gets zeros. A turn equal to all turns that it
is compared with gets exactly 0: rounding must not create a signal.
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
"""A spread below this share of the largest value counts as 0: equal returns that are summed in different orders differ
by rounding."""


@dataclass(frozen=True)
class Steps:
    """One episode as input of credit: for each turn a reward, a state and perhaps a milestone. `known`: the episode has
    a verdict."""

    rewards: Sequence[float]
    states: Sequence[str] = ()
    milestones: Sequence[str | None] = ()
    known: bool = True

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Anchors:
    """The step part of GiGPO. `share` of the turns are in groups of two or more, which have `size` turns on average."""

    parts: list[list[float]]
    shared: int
    groups: int
    turns: int


def returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted return of each turn: G_t = r_t + gamma G_(t+1)."""
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
    """GiGPO's step part (arXiv 2505.10978, section on anchor state grouping): each turn's discounted return minus the
    mean over all turns in the same state, in any episode; 0 for a state that occurs once.

    Args:
        episodes: of one row; if an episode returns to a state, several of its turns are in one group.
        gamma: discount a turn.
        norm: `std` divides by the group's standard deviation (n - 1).
        similarity: a state belongs to a group if its similarity to the group's first state (difflib's ratio) is at
        least this; None: only equal states.
        floor: a spread below this counts as 0.
    """
    # state -> its (episode, turn) pairs; in order of appearance, so that ties do not depend on hashing
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
    """Values minus their mean, divided by their standard deviation (n - 1) if `norm` is `std`; zeros if they are
    equal."""
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

    With an `order` only its names count, and each only after the one before it.
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
    """BEACON's segment part (arXiv 2605.06078, and its `core_migpo.py`): a turn in a segment that ends in a milestone
    is worth `reward` x gamma^(turns until then), a turn in the unfinished tail 0. From this the mean over all turns of
    all episodes in the segment with that number is subtracted, including tails, which represent failure.
    """
    # a turn closer to its milestone is worth more; a tail without a milestone is worth 0
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
    """The executor's part of planner and executor (after HiPER, arXiv 2602.16165, whose code is not public): the value
    of an episode's k-th subgoal is the sum of its turns' rewards, compared with the k-th subgoals of the other
    episodes.

    `starts` are the turns of each episode at which a subgoal begins. Returns one number a turn, that of its subgoal.
    """
    # count once an episode, not once a turn: a long subgoal must not weigh more in the mean of its place
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


# Segments of one answer, by the policy's own value of each cut.

LEAST_SHARE = 0.1
"""Of the largest gain, what every segment weighs (the authors')."""
MOST_SCALE = 5.0
"""How far gains are scaled up at most: where all are nearly 0 they are noise."""


def kept_cuts(cuts: Sequence[int], entropies: Sequence[float], segments: int) -> list[int]:
    """The cuts, places of an answer in order, that leave so many segments: the one with the least entropy behind it goes first."""
    left = list(zip(cuts, entropies, strict=True))
    while len(left) + 1 > segments:
        left.remove(min(left, key=lambda one: one[1]))
    return [cut for cut, _ in left]


def gains(values: Sequence[float], right: bool) -> list[float]:
    """What each segment gained: `values` are those before each segment, behind the last stands whether the answer is right."""
    behind = [*values[1:], float(right)]
    return [after - before for before, after in zip(values, behind, strict=True)]


def cut_weights(gained: Sequence[float], tokens: Sequence[int], advantage: float) -> list[float]:
    """What the advantage of an answer is multiplied by on each of its segments; 1 on average over tokens, never below 0."""
    least, sign = LEAST_SHARE * max(map(abs, gained)), math.copysign(1.0, advantage)
    sizes = [max(sign * gain, 0.0) + least for gain in gained]
    # alike, they are 1 to the last bit, as without credit
    if not least or min(sizes) == max(sizes):
        return [1.0] * len(sizes)
    mean = math.fsum(size * n for size, n in zip(sizes, tokens, strict=True)) / sum(tokens)
    return [size / mean for size in sizes]


def cut_values(
    gained: Sequence[Sequence[float]], tokens: Sequence[Sequence[int]], advantages: Sequence[float]
) -> list[list[float]]:
    """The advantage of each segment of the answers of one row: what it gained less the mean of the segments of that number, scaled
    so that an answer's mean |advantage| over tokens is that of its own."""
    most = max(map(len, gained), default=0)
    means = [
        math.fsum(column) / len(column) for k in range(most) if (column := [row[k] for row in gained if k < len(row)])
    ]
    found = []
    for row, lengths, advantage in zip(gained, tokens, advantages, strict=True):
        centred = [gain - mean for gain, mean in zip(row, means, strict=False)]
        size = math.fsum(abs(c) * n for c, n in zip(centred, lengths, strict=True)) / max(sum(lengths), 1)
        scale = min(abs(advantage) / size, MOST_SCALE) if size > ROUNDING and advantage else 0.0
        found.append([scale * c for c in centred])
    return found
