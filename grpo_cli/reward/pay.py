"""What a group is paid: the judge's rewards, with shaping added, and the placebo arm's instead where one is asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.judge import Judgement
from grpo_cli.reward.placebo import placebo
from grpo_cli.reward.shaping import shaping_terms
from grpo_verifiers.shaping import Shaped, shape


class RewardRule:
    """The rewards that a recipe's training learns from."""

    def __init__(self, recipe: Recipe) -> None:
        """Raises RecipeError for a shaping term with an option that it does not have."""
        self.terms, self.most, self.train = shaping_terms(recipe), recipe.sample.max_tokens, recipe.train

    def of(
        self, judged: Sequence[Judgement], texts: Sequence[str], tokens: Sequence[int], place: str
    ) -> list[float]:
        """The rewards of one group, NaN where there is no verdict. `place` says where in the run it stands: a placebo's chance."""
        rewards = [self._one(j, text, n) for j, text, n in zip(judged, texts, tokens, strict=True)]
        if self.train.control is None:
            return rewards
        return placebo(self.train.control, rewards, judged, f"{self.train.seed}/{place}")

    def _one(self, judged: Judgement, text: str, tokens: int) -> float:
        # shaping is no verdict: a sample that nobody judged is not paid for its form
        if judged.reward is None:
            return math.nan
        return judged.reward + sum(
            shape(self.terms, Shaped(text, tokens, self.most, judged.is_right)).values()
        )
