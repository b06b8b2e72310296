"""Group statistics in one pass over samples, in constant memory if groups are contiguous.

Every closed group keeps a counter of about 150 bytes. After 65,536 groups, if none has come back and most have two
samples or more, the input is taken to be contiguous: the counters are added to totals, and a fixed filter of 8 MiB
detects a group that comes back later. Otherwise (a group came back, or each has one sample so far, as in a file that
repeats all prompts several times) the counters are kept, and memory grows with the number of groups.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from grpo_cli.statistics.dead_groups import expected_dead
from grpo_cli.statistics.step import are_apart, count_kinds, mean_pass_at_k
from grpo_verifiers.verdict import Outcome

KEPT = 65_536
BYTES_A_GROUP = 150
_FILTER_BITS = 1 << 26

Order = Literal["auto", "contiguous", "scattered"]


@dataclass(slots=True)
class GroupTotals:
    """Groups as counts: `(judged, right)` pairs, and the number of groups with signal, whose rewards differ."""

    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    with_signal: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reward_sum: float = 0.0
    reward_n: int = 0

    @property
    def groups(self) -> int:
        """Number of groups."""
        return sum(self.sizes.values())

    def kinds(self) -> dict[str, int]:
        """Groups all wrong, mixed, all right, and without any primary verdict."""
        return count_kinds(self.pairs)

    def usual_size(self) -> int:
        """The most frequent number of samples in a group; the larger of two equally frequent ones."""
        return max(self.sizes, key=lambda size: (self.sizes[size], size), default=0)

    def pass_k(self) -> dict[int, float]:
        """pass@k for k = 1, 2, 4, … and the usual size, each over the groups with at least k verdicts."""
        largest = max((judged for judged, _ in self.pairs), default=0)
        ks = {1 << i for i in range(largest.bit_length())} | {self.usual_size()}
        found = {k: mean_pass_at_k(self.pairs, k) for k in sorted(ks) if 1 <= k <= largest}
        return {k: value for k, value in found.items() if value is not None}

    def predicted_dead(self, size: int) -> float | None:
        """Expected share of groups of `size` samples that come out all wrong or all right, at these pass rates."""
        return expected_dead(self.pairs, size)


class Tally:
    """Counts samples as they come, by group."""

    def __init__(self, order: Order = "auto", kept: int = KEPT) -> None:
        self.totals = GroupTotals()
        self.came_back = 0
        self._order = order
        self._kept = kept
        self._open: int | None = None
        self._state = _State()
        self._index: dict[int, int] = {}
        self._counts = array("Q")
        self._first = array("d")
        self._filter: bytearray | None = None
        self._single = 0
        self._is_scattered = order == "scattered"

    @property
    def is_scattered(self) -> bool:
        """Whether a group has come back after another."""
        return self._is_scattered

    @property
    def is_inexact(self) -> bool:
        """Whether groups came back after their counters were added to totals: group statistics then count runs of
        lines."""
        return self._filter is not None and self.came_back > 0.001 * max(1, self.totals.groups)

    def add(self, group: int, outcome: str, reward: float | None, told: float | None = None) -> None:
        """Count one sample; `told` is the part of its reward that decides whether a group is alive (default: all of
        it)."""
        totals = self.totals
        totals.outcomes[outcome] += 1
        if reward is not None:
            totals.reward_sum += reward
            totals.reward_n += 1
        if group != self._open:
            self._close()
            self._open = group
            self._state = self._recall(group)
        self._state.add(outcome, reward if told is None else told)

    def finish(self) -> GroupTotals:
        """The totals, once all samples are in."""
        self._close()
        self._open = None
        self._fold()
        return self.totals

    def _recall(self, group: int) -> _State:
        if self._order == "contiguous":
            return _State()
        at = self._index.get(group)
        if at is not None:
            self._is_scattered = True
            self.came_back += 1
            return _State.unpacked(self._counts[at], self._first[at])
        if self._filter is not None and all(self._filter[at >> 3] & (1 << (at & 7)) for at in _probes(group)):
            self.came_back += 1
        return _State()

    def _close(self) -> None:
        if self._open is None:
            return
        if self._order == "contiguous" or self._filter is not None:
            self._fold_one(self._state)
            if self._filter is not None:
                _mark(self._filter, self._open)
            return
        at = self._index.setdefault(self._open, len(self._counts))
        if at == len(self._counts):
            self._counts.append(0)
            self._first.append(0.0)
        self._counts[at], self._first[at] = self._state.packed(), self._state.first
        self._single += self._state.size == 1
        is_due = len(self._counts) % self._kept == 0
        if is_due and not self._is_scattered and 2 * self._single < len(self._counts):
            self._filter = bytearray(_FILTER_BITS // 8)
            for group in self._index:
                _mark(self._filter, group)
            self._fold()

    def _fold(self) -> None:
        for packed, first in zip(self._counts, self._first, strict=True):
            self._fold_one(_State.unpacked(packed, first))
        self._index, self._counts, self._first = {}, array("Q"), array("d")

    def _fold_one(self, state: _State) -> None:
        self.totals.pairs[state.judged, state.right] += 1
        self.totals.sizes[state.size] += 1
        self.totals.with_signal += state.differs


@dataclass(slots=True)
class _State:
    """One group: 20 bits each of size, judged and right, one bit each of has-reward and rewards-differ."""

    size: int = 0
    judged: int = 0
    right: int = 0
    has_reward: bool = False
    differs: bool = False
    first: float = 0.0

    def add(self, outcome: str, told: float | None) -> None:
        self.size += 1
        if outcome != Outcome.ERROR.value:
            self.judged += 1
            self.right += outcome == Outcome.RIGHT.value
        if told is None:
            return
        if not self.has_reward:
            self.has_reward, self.first = True, told
        elif are_apart(told, self.first):
            self.differs = True

    def packed(self) -> int:
        most = (1 << 20) - 1
        counts = (min(self.size, most) << 40) | (min(self.judged, most) << 20) | min(self.right, most)
        return (counts << 2) | (self.has_reward << 1) | self.differs

    @classmethod
    def unpacked(cls, packed: int, first: float) -> _State:
        most = (1 << 20) - 1
        counts = packed >> 2
        return cls(counts >> 40, (counts >> 20) & most, counts & most, bool(packed & 2), bool(packed & 1), first)


def _probes(group: int) -> tuple[int, ...]:
    one, two = group % _FILTER_BITS, (group >> 26) % _FILTER_BITS
    return one, two, (one + two) % _FILTER_BITS, (one + 3 * two + 1) % _FILTER_BITS


def _mark(bits: bytearray, group: int) -> None:
    for at in _probes(group):
        bits[at >> 3] |= 1 << (at & 7)
