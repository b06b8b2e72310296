"""The rewards of a group: the judge's, with shaping added, or those of a placebo if the recipe has one.

How this works. `RewardRule.of` takes the judgements of one group and returns a `Pay`: the reward of each sample, and
the part of it that the outcome alone pays (`OutcomeRule`), which decides whether a group is alive (`train.alive_by`).
The reward of a sample is

    R = sum_v w_v score_v + sum_s w_s shape_s        v its verifiers (`combine`), s its shaping terms

and NaN (no verdict) stays NaN throughout: such a sample is never paid 0, nor paid for its form.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from grpo_cli.errors import RecipeError
from grpo_cli.reward.judge import Judgement, rule_of
from grpo_verifiers.combine import CombineRule, RewardSpec, RewardTerm, combine, primary_of
from grpo_verifiers.shaping import Shaped, build_term, shape
from grpo_verifiers.verdict import Outcome, Verdict
from grpo_verifiers.verifier import BadOption

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe


@dataclass(frozen=True)
class OutcomeRule:
    """Computes the reward for the outcome alone: from the verifiers that `alive_by` names, or the primary one, by the
    recipe's `combine`.

    If another verifier judges a row in their place (`combine: by`, or they skip it), that one decides the outcome. All
    verifiers together decide it if the recipe chooses among them (`combine: first`) or gives the primary one weight 0.
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
        """The rule for these verifiers; `alive_by` as in `train`. With `alive_by: reward` there is no gate, and the
        outcome is the primary verifier's."""
        names = [primary_of(specs)] if isinstance(alive_by, str) else list(alive_by)
        return cls(specs, rule, names, fines or {})

    def pays(self, verdicts: Mapping[str, Verdict], reward: float, invalid: int = 0) -> float:
        """The reward for the outcome of a sample whose verifiers together pay `reward`; `invalid` actions cost nothing
        here."""
        # a verifier that skipped the row has no verdict; the verifier that judged it instead decides the outcome
        judging = [name for name in self.names if name in verdicts] or list(verdicts)[:1]
        # with `first` only one verdict is paid, and a primary of weight 0 pays nothing: then the whole reward is the
        # outcome
        if self.rule.method == "first" or not any(self.specs[name].weight for name in judging):
            return reward
        # give it weight 0 instead of leaving it out: the rule may still use its verdict as a gate
        alone = {
            name: spec if name in judging else RewardTerm(0.0, spec.primary, spec.right_at)
            for name, spec in self.specs.items()
        }
        # invalid actions do not change the outcome of an episode: their fine counts as shaping
        whole = dict(verdicts)
        for name, fine in self.fines.items():
            score = verdicts[name].score if name in verdicts else None
            if fine * invalid and score is not None:
                whole[name] = replace(verdicts[name], score=score + fine * invalid)
        paid = combine(whole, alone, rule=self.rule)
        return reward if paid is None else paid


class Pay(NamedTuple):
    """For each sample of a group its reward, and the part that the outcome pays; NaN if there is no verdict."""

    rewards: list[float]
    outcomes: list[float]


class RewardRule:
    """The rewards that a recipe's training learns from."""

    def __init__(self, recipe: Recipe) -> None:
        """Raises RecipeError for invalid shaping terms."""
        self.terms = build_terms(shaping_entries(recipe))
        self.most, self.train = recipe.sample.max_tokens, recipe.train
        self.outcome = OutcomeRule.of(recipe.verify, rule_of(recipe.combine), recipe.train.alive_by, recipe.fines)

    def of(
        self,
        judged: Sequence[Judgement],
        texts: Sequence[str],
        tokens: Sequence[int],
        place: str,
        invalid: Sequence[int] | None = None,
    ) -> Pay:
        """The rewards of one group. `place` identifies the group in the run and seeds a placebo; `invalid` counts the
        actions of each sample that its environment could not read."""
        # shaping is no verdict: a sample without one is not paid for its form
        rewards = [
            math.nan
            if j.reward is None
            else j.reward + sum(shape(self.terms, Shaped(text, n, self.most, j.is_right)).values())
            for j, text, n in zip(judged, texts, tokens, strict=True)
        ]
        if self.train.control is not None:
            rewards = placebo(self.train.control, rewards, judged, f"{self.train.seed}/{place}")
            return Pay(rewards, rewards)  # a placebo has no gate: the gate would depend on the true outcomes
        outcomes = [
            math.nan if j.reward is None else self.outcome.pays(j.verdicts, j.reward, n)
            for j, n in zip(judged, invalid or [0] * len(judged), strict=True)
        ]
        return Pay(rewards, outcomes)


# Shaping: small rewards for form, added to what the verifiers pay.

Terms = dict[str, tuple[float, Callable[[Shaped], float]]]


@dataclass(frozen=True, slots=True)
class ShapingEntry:
    """One shaping term: its options, its weight, and whether it is paid for all answers or for right ones only."""

    options: Mapping[str, Any]
    weight: float = 1.0
    only: Literal["right"] | None = None


def shaping_entries(recipe: Recipe) -> dict[str, ShapingEntry]:
    """The terms of a recipe by name; `train.overlong` is one of weight 1.

    Raises:
        RecipeError: `overlong` is asked for in both places.
    """
    entries = {str(name): ShapingEntry(dict(one.options), one.weight, one.only) for name, one in recipe.shaping.items()}
    if not recipe.train.overlong:
        return entries
    # otherwise it would silently be paid twice
    if "overlong" in entries:
        raise RecipeError(
            f"`train.overlong` ({recipe.train.overlong:g}) is a penalty for long answers too",
            place="`shaping.overlong`",
            hint="leave one out: `shaping.overlong`, or `train.overlong: null`",
        )
    return {"overlong": ShapingEntry({"cache": recipe.train.overlong}), **entries}


def build_terms(entries: Mapping[str, ShapingEntry], place: str = "`shaping.{}`") -> Terms:
    """Weight and function of each term; `place` is the key that an error names, `{}` in it the term.

    Raises:
        RecipeError: an option that the term does not have, or an invalid value.
    """
    terms: Terms = {}
    for name, entry in entries.items():
        try:
            terms[name] = (entry.weight, build_term(name, only=entry.only, **entry.options))
        except BadOption as err:
            raise RecipeError(str(err), place=place.format(name)) from err
    return terms


# Placebo arms: the same budget and data, with rewards that carry no information about right and wrong. What a run gains
# with a placebo, it gains without a verifier: from format, from length, or by noise of the evaluation.

Control = Literal["random", "shuffled", "format_only"]


def placebo(control: Control, rewards: Sequence[float], judgements: Sequence[Judgement], key: str) -> list[float]:
    """The rewards of a group under a placebo; NaN (no verdict) stays in place. The random choice depends on `key`
    alone.

    `random` is a fair coin. `shuffled` permutes the group's own rewards, so their spread is the true one.
    `format_only` rewards any answer that could be read, right or wrong.
    """
    rng = random.Random(key)
    if control == "format_only":
        read = [j.outcome in (Outcome.RIGHT, Outcome.WRONG) for j in judgements]
        return [math.nan if math.isnan(r) else float(ok) for r, ok in zip(rewards, read, strict=True)]
    if control == "random":
        # draw for every sample, also without a verdict, so that an error does not change the other draws
        coins = [float(rng.random() < 0.5) for _ in rewards]
        return [math.nan if math.isnan(r) else coin for r, coin in zip(rewards, coins, strict=True)]
    # `shuffled` keeps the group's true mean and spread; only the assignment to samples is random
    known = [r for r in rewards if not math.isnan(r)]
    rng.shuffle(known)
    # permute known rewards only: NaN stays with its sample
    permuted = iter(known)
    return [r if math.isnan(r) else next(permuted) for r in rewards]
