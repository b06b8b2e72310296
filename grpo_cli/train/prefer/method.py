"""Groups of samples as pairs: what each sample is worth, and whether a group teaches anything."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo_cli.algorithm.credit import Credit
from grpo_cli.preference.pairs import PairLimits, RowPairs, pairs_of_row
from grpo_cli.recipe.sections.recipe import Prefer, Recipe
from grpo_cli.reward.group import Group
from grpo_cli.run.records import SampleRecord


@dataclass(frozen=True)
class PairMethod:
    """`train.method: prefer`, asked of groups as `Method` is.

    An advantage is the number of pairs that a sample wins less those that it loses (`kto`: 1 or -1 for every usable
    sample), so that 0 means here too that nothing is learned from it. `placebo` shuffles labels inside a row by this seed.
    """

    prefer: Prefer
    placebo: int | None = None

    @classmethod
    def of(cls, recipe: Recipe) -> PairMethod:
        """The method of a recipe with `train.method: prefer`."""
        assert recipe.prefer is not None, "the recipe fills it in"
        return cls(recipe.prefer, recipe.train.seed if recipe.train.control == "shuffled" else None)

    def pairs(self, group: Group) -> RowPairs:
        """What one group gives."""
        samples = [
            SampleRecord(
                0,
                str(group.row),
                "",
                "",
                text,
                outcome=judgement.outcome,
                tokens=len(completion.token_ids),
                truncated=completion.finish == "length",
            )
            for completion, text, judgement in zip(
                group.completions, group.texts, group.judgements, strict=True
            )
        ]
        limits = PairLimits(a_row=self.prefer.pairs_a_row, gap=self.prefer.length_gap)
        placebo = None
        if self.placebo is not None:  # chance by what was drawn, whatever batch or process it stands in
            placebo = f"{self.placebo}/{zlib.crc32(repr(group.texts).encode('utf-8', 'surrogatepass'))}"
        return pairs_of_row(str(group.row), samples, limits, placebo)

    def credit(self, groups: Sequence[Group], penalty_PG: Tensor | None = None) -> Credit:
        """What each sample of these groups, all of one size, is worth; nothing is taken off here."""
        assert penalty_PG is None, "a KL is in these losses, or there is none"
        A_PG = torch.tensor([self._worth(group) for group in groups], dtype=torch.float64)
        return Credit(A_PG, torch.ones_like(A_PG, dtype=torch.bool), A_PG.ne(0).any(dim=1))

    def has_signal(self, group: Group) -> bool:
        """Whether it gives a pair (`kto`: any usable sample)."""
        return any(self._worth(group))

    def _worth(self, group: Group) -> list[float]:
        found, worth = self.pairs(group), [0.0] * len(group.texts)
        if self.prefer.loss == "kto":
            for answer in found.answers:
                worth[answer.place] = 1.0 if answer.is_right else -1.0
            return worth
        for pair in found.pairs:
            worth[pair.chosen.place] += 1.0
            worth[pair.rejected.place] -= 1.0
        return worth
