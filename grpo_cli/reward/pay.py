"""What a group is paid: the judge's rewards, with shaping added, and the placebo arm's instead where one is asked for.

How this works. `RewardRule.of` takes the judgements of one group and returns a `Pay`: the reward of each sample, and what the outcome
alone pays of it (`OutcomeRule`), by which a group counts as alive (`train.alive_by`). The reward of a sample is

    R = sum_v w_v score_v + sum_s w_s shape_s        v its verifiers (`combine`), s its shaping terms

and NaN, no verdict, stays NaN through all of it: it is never paid 0, nor for its form.
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
        # a verifier that skipped the row has no verdict; the one that judged it in its place is the outcome then
        judging = [name for name in self.names if name in verdicts] or list(verdicts)[:1]
        # with `first` one verdict is all that is paid, and a primary of weight 0 pays nothing: the whole is the outcome then
        if self.rule.method == "first" or not any(self.specs[name].weight for name in judging):
            return reward
        # weight 0 and not left out: the rule may still use its verdict, as a gate
        alone = {
            name: spec if name in judging else RewardTerm(0.0, spec.primary, spec.right_at)
            for name, spec in self.specs.items()
        }
        # the outcome of an episode is the same with clumsy actions: their fine is shaping
        whole = dict(verdicts)
        for name, fine in self.fines.items():
            score = verdicts[name].score if name in verdicts else None
            if fine * invalid and score is not None:
                whole[name] = replace(verdicts[name], score=score + fine * invalid)
        paid = combine(whole, alone, rule=self.rule)
        return reward if paid is None else paid


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
        self.outcome = OutcomeRule.of(recipe.verify, rule_of(recipe.combine), recipe.train.alive_by, recipe.fines)

    def of(
        self,
        judged: Sequence[Judgement],
        texts: Sequence[str],
        tokens: Sequence[int],
        place: str,
        invalid: Sequence[int] | None = None,
    ) -> Pay:
        """What one group is paid. `place` is where in the run it stands, the seed of a placebo; `invalid` counts the actions of
        each sample that its environment could not read."""
        # shaping is no verdict: a sample that nobody judged is not paid for its form
        rewards = [
            math.nan
            if j.reward is None
            else j.reward + sum(shape(self.terms, Shaped(text, n, self.most, j.is_right)).values())
            for j, text, n in zip(judged, texts, tokens, strict=True)
        ]
        if self.train.control is not None:
            rewards = placebo(self.train.control, rewards, judged, f"{self.train.seed}/{place}")
            return Pay(rewards, rewards)  # a placebo that the truth gates would be none
        outcomes = [
            math.nan if j.reward is None else self.outcome.pays(j.verdicts, j.reward, n)
            for j, n in zip(judged, invalid or [0] * len(judged), strict=True)
        ]
        return Pay(rewards, outcomes)


# Shaping: small rewards for form, added to what the verifiers pay.

Terms = dict[str, tuple[float, Callable[[Shaped], float]]]


@dataclass(frozen=True, slots=True)
class ShapingEntry:
    """One shaping term: its options, its weight, and which answers it is paid for: all, or the right ones."""

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
    # it would be paid twice, without a word on the screen
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
        RecipeError: an option that the term does not have, or a value that cannot be meant.
    """
    terms: Terms = {}
    for name, entry in entries.items():
        try:
            terms[name] = (entry.weight, build_term(name, only=entry.only, **entry.options))
        except BadOption as err:
            raise RecipeError(str(err), place=place.format(name)) from err
    return terms


# Placebo arms: the same budget and the same data, with rewards that carry nothing about right and wrong. What a run gains
# under one it gains without a verifier: format, length, or an eval that moves by itself.

Control = Literal["random", "shuffled", "format_only"]


def placebo(control: Control, rewards: Sequence[float], judgements: Sequence[Judgement], key: str) -> list[float]:
    """The rewards of a group under a control; NaN (no verdict) stays where it is. Chance depends on `key` alone.

    `random` is a fair coin. `shuffled` permutes the group's own rewards, so their spread is the true one.
    `format_only` rewards any answer that could be read, right or wrong.
    """
    rng = random.Random(key)
    if control == "format_only":
        read = [j.outcome in (Outcome.RIGHT, Outcome.WRONG) for j in judgements]
        return [math.nan if math.isnan(r) else float(ok) for r, ok in zip(rewards, read, strict=True)]
    if control == "random":
        # one for every sample, also without a verdict, so that an error moves nobody else's coin
        coins = [float(rng.random() < 0.5) for _ in rewards]
        return [math.nan if math.isnan(r) else coin for r, coin in zip(rewards, coins, strict=True)]
    # `shuffled`: mean and spread of the group are the true ones, so that only the order can teach
    known = [r for r in rewards if not math.isnan(r)]
    rng.shuffle(known)
    # only what is known is permuted: NaN stays with its sample
    permuted = iter(known)
    return [r if math.isnan(r) else next(permuted) for r in rewards]
