"""The groups of one step: rows are sampled, screened, and sampled again if groups have no signal."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from grpo_cli.reward.group import Group
from grpo_cli.rollout.collect import EngineCall


@dataclass(frozen=True, slots=True)
class RowChoice:
    """Rows to sample. If there are more than `wanted` they are screened, that is sampled with half a group first."""

    rows: list[int]
    wanted: int
    is_screened: bool = False


Choose = Callable[[int, int, Collection[int]], RowChoice]
"""(step, number of groups wanted, rows already used in the step) -> rows to sample."""


class CollectGroups(Protocol):
    """(rows, samples for each, number of the call in the step, samples they already have) -> a judged group for each
    row."""

    def __call__(self, rows: Sequence[int], size: int, call: EngineCall, first: int = 0) -> list[Group]: ...


class StepGroups:
    """The sampling of one step; created for each step."""

    def __init__(self, step: int, size: int, collect: CollectGroups) -> None:
        self.step, self.size, self._collect = step, size, collect
        self.groups: list[Group] = []
        self.calls = 0

    @property
    def rows(self) -> set[int]:
        """Rows that were sampled in this step."""
        return {group.row for group in self.groups}

    def collect(self, chosen: RowChoice) -> list[Group]:
        """A group for each chosen row. If rows are screened, only for the `wanted` rows nearest to half right."""
        if not chosen.is_screened:
            groups = self._sample(chosen.rows, self.size)
        else:
            candidates = self._sample(chosen.rows, self.size // 2)
            # a stable sort: among equals the row chosen first wins
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


# Dynamic sampling (DAPO, arXiv 2503.14476): sample again until every group of the batch carries signal.


@dataclass(frozen=True)
class FilledBatch:
    """The batch, and the cost of filling it."""

    groups: list[Group]
    rejected: list[Group]
    rounds: int

    def metrics(self) -> dict[str, float]:
        """`resample/…`: rounds after the first, groups rejected by kind and the tokens generated for them."""
        wrong = sum(g.right == 0 for g in self.rejected)
        right = sum(g.right == g.judged > 0 for g in self.rejected)
        return {
            "resample/rounds": self.rounds,
            "resample/thrown": len(self.rejected),
            "resample/thrown_all_wrong": wrong,
            "resample/thrown_all_right": right,
            "resample/thrown_tokens": sum(g.tokens for g in self.rejected),
        }


def fill(
    first: Sequence[Group], sample: Callable[[int], list[Group]], has_signal: Callable[[Group], bool], most_rounds: int
) -> FilledBatch:
    """A batch of `len(first)` groups, with as many groups with signal as `most_rounds` further calls of `sample` give.

    Each round estimates from the share with signal so far how many groups are needed, at most a batch. If groups are
    still missing at the end, groups without signal fill the batch, so its size never changes. A call that returns fewer
    groups than asked for (no rows left) ends the search.
    """
    size, sampled, rounds = len(first), list(first), 0
    alive = [g for g in sampled if has_signal(g)]
    while len(alive) < size and rounds < most_rounds:
        # Laplace's rule: never 0, so that a first round without signal does not ask for all rows
        share = (len(alive) + 1) / (len(sampled) + 2)
        wanted = min(size, math.ceil((size - len(alive)) / share))
        more = sample(wanted)
        rounds += 1
        sampled += more
        alive += [g for g in more if has_signal(g)]
        if len(more) < wanted:
            break
    kept = alive[:size]
    kept += [g for g in sampled if not has_signal(g)][: size - len(kept)]
    # compare by identity: groups hold lists, which are not hashable
    chosen = {id(g) for g in kept}
    return FilledBatch(kept, [g for g in sampled if id(g) not in chosen], rounds)
