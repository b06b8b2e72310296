"""What credit has to know of a sample's text, as places among its tokens: milestones in an answer, and where a plan ends.

A token belongs to the part of the text in which it *ends*, so one that is half of a character is not cut off from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from grpo_cli.recipe.sections.recipe import TurnCredit
from grpo_cli.rollout.engine import Completion, Turn

Decode = Callable[[list[list[int]]], list[str]]

FIRST = "first"
"""`plan` where the first turn is the plan."""


@dataclass(frozen=True)
class CreditMarker:
    """Puts the marks that a recipe's `train.credit` reads on samples."""

    spec: TurnCredit
    decode: Decode

    def put(self, completions: Sequence[Completion]) -> list[Completion]:
        """The same samples with their marks."""
        if self.spec.method == "planner":
            return [self._planned(c) for c in completions]
        if self.spec.patterns:
            return [replace(c, marks=self._milestones(c.token_ids)) for c in completions]
        return list(completions)

    def _milestones(self, ids: list[int]) -> tuple[Turn, ...]:
        """The parts of an answer, each up to where a milestone is reached for the first time, and the rest."""
        text = self.decode([ids])[0]
        found = [(match.end(), name) for name, match in self._matches(text)]
        parts, start = list[Turn](), 0
        # in the order in which the text reaches them, not that of the recipe
        for end, name in sorted(found):
            stop = self._tokens(ids, text[:end])
            if stop > start:  # of two that one token completes the first counts
                parts.append(Turn(start, stop, milestone=name))
                start = stop
        if start < len(ids) or not parts:
            parts.append(Turn(start, len(ids)))
        return tuple(parts)

    def _matches(self, text: str) -> list[tuple[str, re.Match[str]]]:
        found = ((name, re.search(pattern, text)) for name, pattern in self.spec.patterns.items())
        return [(name, match) for name, match in found if match is not None]

    def _planned(self, completion: Completion) -> Completion:
        """With the tokens at the start of each turn that are a plan."""
        episode = completion.episode
        if episode is None:
            return completion
        turns = tuple(
            replace(turn, planned=self._plan(completion.token_ids[turn.start : turn.end], number))
            for number, turn in enumerate(episode.turns)
        )
        return replace(completion, episode=replace(episode, turns=turns))

    def _plan(self, ids: list[int], number: int) -> int:
        if self.spec.plan == FIRST:
            return len(ids) if number == 0 else 0
        before, end, _ = self.decode([ids])[0].partition(self.spec.plan)
        return self._tokens(ids, before + end) if end else 0

    def _tokens(self, ids: list[int], text: str) -> int:
        """The fewest tokens that say this beginning of what `ids` say."""
        # by halves: decoding every beginning would take time with the square of the length
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if self.decode([ids[:middle]])[0].startswith(text):
                high = middle
            else:
                low = middle + 1
        return low
