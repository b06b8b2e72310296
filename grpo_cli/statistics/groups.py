"""The samples of one prompt as counts: what is judged, right and wrong, which kind of group that makes, and pass@k over groups.

A sample whose primary verifier failed is not judged: it is neither right nor wrong, and a group without any judged sample is of
no kind. Signal is another matter: the method of a run decides it (some advantage is not 0), so it is a value given here. Where
only rewards are known, `would_have_signal` forecasts it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import pass_at_k
from grpo_verifiers.verdict import Outcome

Kind = Literal["all_wrong", "mixed", "all_right", "no_verdict"]
KINDS: tuple[Kind, ...] = ("all_wrong", "mixed", "all_right", "no_verdict")

SPREAD, ROUNDING = 1e-9, 2**-51
"""Rewards closer than this, or than this share of the largest, are equal: weighted sums of the same scores may differ in the
last bits."""


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """One group: `judged` of its `size` samples have a primary verdict, `right` of them are right."""

    size: int
    judged: int
    right: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome | None]) -> GroupCounts:
        """The counts of a group's primary outcomes; None and `error` are no verdict."""
        counts = Counter(outcomes)
        size = counts.total()
        return cls(size, size - counts[None] - counts[Outcome.ERROR], counts[Outcome.RIGHT])

    @property
    def kind(self) -> Kind:
        """All wrong, mixed or all right by the judged samples."""
        return kind_of(self.judged, self.right)


def kind_of(judged: int, right: int) -> Kind:
    """The kind of a group with so many judged and right samples."""
    if judged == 0:
        return "no_verdict"
    return "all_wrong" if right == 0 else "all_right" if right == judged else "mixed"


def count_kinds(counts: Mapping[tuple[int, int], int]) -> dict[str, int]:
    """Groups of each kind, of how often each (judged, right) occurs."""
    out: dict[str, int] = dict.fromkeys(KINDS, 0)
    for (judged, right), times in counts.items():
        out[kind_of(judged, right)] += times
    return out


def mean_pass_at_k(counts: Mapping[tuple[int, int], int], k: int) -> float | None:
    """Mean of pass@k over the groups with at least k judged samples; None where there is none.

    `counts` says how often each (judged, right) occurs. The sum is exact, so that neither order nor repetition shows in it.
    """
    values = [(Fraction(pass_at_k(n, c, k)), times) for (n, c), times in counts.items() if n >= k]
    total = sum(times for _, times in values)
    return float(sum(value * times for value, times in values)) / total if total else None


def would_have_signal(rewards: Sequence[float]) -> bool:
    """A forecast of signal for samples that no training step has seen: whether two of these rewards differ.

    It holds for methods that centre the reward in its group; `train.std_floor` and `normalise_then_sum` may decide otherwise.
    """
    return len(rewards) > 1 and are_apart(min(rewards), max(rewards))


def are_apart(one: float, other: float) -> bool:
    """Whether two rewards differ by more than rounding."""
    return abs(one - other) > max(SPREAD, ROUNDING * max(abs(one), abs(other)))


def has_signal(samples: Sequence[SampleRecord]) -> bool:
    """Whether a group has signal: by its advantages where a training step gave some, else by the forecast."""
    advantages = [s.advantage for s in samples if s.advantage is not None]
    if advantages:
        return any(advantages) or any(turn.get("advantage") for s in samples for turn in s.turns)
    return would_have_signal([s.reward for s in samples if s.reward is not None])


def group_samples(samples: Iterable[SampleRecord]) -> dict[tuple[int, str], list[SampleRecord]]:
    """Samples by step and group id: the same row drawn twice in a step makes two groups."""
    groups: dict[tuple[int, str], list[SampleRecord]] = defaultdict(list)
    for sample in samples:
        groups[sample.step, str(sample.group)].append(sample)
    return groups
