"""Pairs of a step as token ids, in the order in which they are learned. No torch.

A tokeniser is asked for nothing: ids are those that were sampled, so that what is learned is what was drawn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from grpo_cli.preference.pairs import RowPairs
from grpo_cli.reward.group import Group


@dataclass(frozen=True, slots=True)
class PairExample:
    """Token ids of a prompt, of the winner and of the loser."""

    row: int
    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]

    @property
    def width(self) -> int:
        """Tokens of the prompt and the longer answer."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))


@dataclass(frozen=True, slots=True)
class LabelledExample:
    """Token ids of a prompt and of an answer to it, and whether it is right."""

    row: int
    prompt_ids: list[int]
    completion_ids: list[int]
    label: bool

    @property
    def width(self) -> int:
        """Tokens of prompt and answer."""
        return len(self.prompt_ids) + len(self.completion_ids)


Example = PairExample | LabelledExample
E_co = TypeVar("E_co", PairExample, LabelledExample)


def pair_examples(groups: Sequence[Group], found: Sequence[RowPairs]) -> list[PairExample]:
    """The pairs that `found` has of these groups."""
    return [
        PairExample(group.row, group.prompt_ids, _ids(group, p.chosen.place), _ids(group, p.rejected.place))
        for group, row in zip(groups, found, strict=True)
        for p in row.pairs
    ]


def labelled_examples(groups: Sequence[Group], found: Sequence[RowPairs]) -> list[LabelledExample]:
    """All usable answers of these groups."""
    return [
        LabelledExample(group.row, group.prompt_ids, _ids(group, answer.place), answer.is_right)
        for group, row in zip(groups, found, strict=True)
        for answer in row.answers
    ]


def _ids(group: Group, place: int) -> list[int]:
    return group.completions[place].token_ids


def in_order(examples: Sequence[E_co], epochs: int, batch: int, seed: int) -> list[E_co]:
    """What is learned, one epoch after the other, each shuffled anew; what does not fill a last batch is left out.

    Fewer than one batch is one batch, whole.
    """
    draw, found = random.Random(seed), list[E_co]()
    for _ in range(epochs):
        epoch = list(examples)
        draw.shuffle(epoch)
        found += epoch
    # an update of fewer pairs than the others would have noisier gradients at the same rate
    return found[: max(len(found) // batch * batch, min(len(found), batch))]


def keep_rows_apart(examples: Sequence[E_co], batch: int) -> list[E_co]:
    """The same, with examples of one row moved away from each other, as far as the rows allow.

    TRL's KTO takes its KL from each prompt with the answer of the example before it in the micro-batch, and the first with
    the last one's: of one row that would be an answer to the very prompt.
    """
    rest, found = list(examples), list[E_co]()
    while rest:
        place = len(found) % batch
        near = {found[-1].row} if place else set[int]()
        if place and (place == batch - 1 or len(rest) == 1):
            near.add(found[len(found) - place].row)
        # none is left that differs: the first, as it comes
        at = next((i for i, one in enumerate(rest) if one.row not in near), 0)
        found.append(rest.pop(at))
    return found
