"""What a group is paid: the judge's rewards, with shaping added, and the placebo arm's instead where one is asked for.

Beside them stands what the outcome alone pays, by which a group counts as alive (`train.alive_by`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from grpo_cli.reward.judge import Judgement, rule_of
from grpo_cli.reward.placebo import placebo
from grpo_cli.reward.shaping import build_terms, shaping_entries
from grpo_verifiers.combine import CombineRule, RewardSpec, RewardTerm, combine, primary_of
from grpo_verifiers.shaping import Shaped, shape
from grpo_verifiers.verdict import Verdict

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe


@dataclass(frozen=True)
class OutcomeRule:
    """What the outcome alone pays: the verifiers that `alive_by` names, or the primary one, by the recipe's own `combine`.

    Where another verifier judges a row in their place (`combine: by`, or they skip it), that one is the outcome. All verifiers
    together are where the recipe chooses among them (`combine: first`), or pays nothing for the primary one.
    """

    specs: Mapping[str, RewardSpec]
    rule: CombineRule
    names: Sequence[str]
    fines: Mapping[str, float] = field(default_factory=dict)
    """What an environment's verifier takes off for each invalid action."""

    @classmethod
    def of(
        cls,
        specs: Mapping[str, RewardSpec],
        rule: CombineRule,
        alive_by: str | Sequence[str],
        fines: Mapping[str, float] | None = None,
    ) -> OutcomeRule:
        """The rule of these verifiers; `alive_by` as in `train`: `reward` is gated by nothing, and its outcome is the primary's."""
        names = [primary_of(specs)] if isinstance(alive_by, str) else list(alive_by)
        return cls(specs, rule, names, fines or {})

    def pays(self, verdicts: Mapping[str, Verdict], reward: float, invalid: int = 0) -> float:
        """What the outcome pays a sample whose verifiers together pay `reward`; `invalid` actions cost nothing here."""
        judging = [name for name in self.names if name in verdicts] or list(verdicts)[:1]
        if self.rule.method == "first" or not any(self.specs[name].weight for name in judging):
            return reward
        alone = {
            name: spec if name in judging else RewardTerm(0.0, spec.primary, spec.right_at)
            for name, spec in self.specs.items()
        }
        whole = {name: self._unfined(name, verdict, invalid) for name, verdict in verdicts.items()}
        paid = combine(whole, alone, rule=self.rule)
        return reward if paid is None else paid

    def _unfined(self, name: str, verdict: Verdict, invalid: int) -> Verdict:
        fine = self.fines.get(name, 0.0) * invalid
        return replace(verdict, score=verdict.score + fine) if fine and verdict.score is not None else verdict


class Pay(NamedTuple):
    """Of each sample of a group its reward, and what of it the outcome pays; NaN where there is no verdict."""

    rewards: list[float]
    outcomes: list[float]


class RewardRule:
    """The rewards that a recipe's training learns from."""

    def __init__(self, recipe: Recipe) -> None:
        """Raises RecipeError for shaping terms that cannot be meant."""
        self.terms = build_terms(shaping_entries(recipe))
        self.most, self.train = recipe.sample.max_tokens, recipe.train
        self.outcome = OutcomeRule.of(
            recipe.verify, rule_of(recipe.combine), recipe.train.alive_by, recipe.fines
        )

    def of(
        self,
        judged: Sequence[Judgement],
        texts: Sequence[str],
        tokens: Sequence[int],
        place: str,
        invalid: Sequence[int] | None = None,
    ) -> Pay:
        """What one group is paid. `place` says where in the run it stands: a placebo's chance; `invalid` counts the actions of
        each sample that its environment could make nothing of."""
        rewards = [self._one(j, text, n) for j, text, n in zip(judged, texts, tokens, strict=True)]
        if self.train.control is not None:
            rewards = placebo(self.train.control, rewards, judged, f"{self.train.seed}/{place}")
            return Pay(rewards, rewards)  # a placebo that the truth gates would be none
        outcomes = [
            math.nan if j.reward is None else self.outcome.pays(j.verdicts, j.reward, n)
            for j, n in zip(judged, invalid or [0] * len(judged), strict=True)
        ]
        return Pay(rewards, outcomes)

    def _one(self, judged: Judgement, text: str, tokens: int) -> float:
        # shaping is no verdict: a sample that nobody judged is not paid for its form
        if judged.reward is None:
            return math.nan
        return judged.reward + sum(
            shape(self.terms, Shaped(text, tokens, self.most, judged.is_right)).values()
        )
