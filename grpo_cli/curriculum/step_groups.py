"""The groups of one step as they are sampled: which rows it had already, and how often the engine was called for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from grpo_cli.reward.group import Group
from grpo_cli.rollout.collect import EngineCall


@dataclass(frozen=True, slots=True)
class RowChoice:
    """Rows to sample. Where there are more than `wanted`, they are screened: sampled with half a group first."""

    rows: list[int]
    wanted: int
    is_screened: bool = False


Choose = Callable[[int, int, Collection[int]], RowChoice]
"""(step, groups wanted, rows that the step had) -> what to sample."""


class CollectGroups(Protocol):
    """(rows, samples each, which call of the step, samples they have) -> a judged group for each row."""

    def __call__(self, rows: Sequence[int], size: int, call: EngineCall, first: int = 0) -> list[Group]: ...


class StepGroups:
    """What one step samples; lives as long as that."""

    def __init__(self, step: int, size: int, collect: CollectGroups) -> None:
        self.step, self.size, self._collect = step, size, collect
        self.groups: list[Group] = []
        self.calls = 0

    @property
    def rows(self) -> set[int]:
        """Rows that were sampled in this step."""
        return {group.row for group in self.groups}

    def collect(self, chosen: RowChoice) -> list[Group]:
        """A group for each chosen row, or for the `wanted` ones nearest to half right where they are screened."""
        if not chosen.is_screened:
            groups = self._sample(chosen.rows, self.size)
        else:
            candidates = self._sample(chosen.rows, self.size // 2)
            # a stable sort: of equals the row that was chosen first
            candidates.sort(key=lambda g: abs(g.right / max(g.judged, 1) - 0.5))
            kept = [g.row for g in candidates[: chosen.wanted]]
            rest = self._sample(kept, self.size - self.size // 2, first=self.size // 2)
            groups = [first.joined(second) for first, second in zip(candidates, rest, strict=False)]
            self.groups += candidates[chosen.wanted :]
        self.groups += groups
        return groups

    def _sample(self, rows: Sequence[int], size: int, first: int = 0) -> list[Group]:
        self.calls += 1
        return self._collect(rows, size, EngineCall(self.step, self.calls), first)
