"""What a recipe pays beside its verdicts: shaping terms, and what of a reward the outcome pays."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.judge import Judgement
from grpo_cli.reward.pay import RewardRule
from grpo_verifiers.shaping import Shaped, build_term
from grpo_verifiers.verdict import Outcome, Verdict


def recipe(**more: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": "tasks:addition3", "prompt": "{question}", "answer": "{answer}"},
            "verify": {"math": {}},
            "sample": {"max_tokens": 40},
            **more,
            "train": {"steps": 1, "lr": 1e-3} | more.get("train", {}),
        }
    )


def judged(*scores: float) -> list[Judgement]:
    found = [Verdict(Outcome.RIGHT if s >= 1 else Outcome.WRONG, s) for s in scores]
    return [Judgement({"math": v}, v.outcome, v.score) for v in found]


@pytest.mark.parametrize("algorithm", ["default", "dapo"])
def test_overlong_in_two_places_is_refused_where_no_recipe_file_was_checked(algorithm: str) -> None:
    said = recipe(train={"algorithm": algorithm, "overlong": 0.2}, shaping={"overlong": {"weight": 0.5}})
    with pytest.raises(RecipeError, match="is a penalty for long answers too") as caught:
        RewardRule(said)
    assert "train.overlong: null" in caught.value.hint


@pytest.mark.parametrize("more", [{"train": {"overlong": 0.5}}, {"shaping": {"overlong": {"cache": 0.5}}}])
def test_overlong_in_one_place_is_paid(more: dict[str, Any]) -> None:
    paid = RewardRule(recipe(**more)).of(judged(1, 0), ["", ""], [30, 40], "")
    assert paid.rewards == [0.5, -1.0]
    assert paid.outcomes == [1.0, 0.0]


def test_a_term_for_right_answers_only_pays_wrong_ones_nothing() -> None:
    said = recipe(shaping={"overlong": {"cache": 0.5, "only": "right"}})
    assert RewardRule(said).of(judged(1, 0), ["", ""], [40, 40], "").rewards == [0.0, 0.0]
    for kind in ("overlong", "repetition", "language", "length"):
        term = build_term(kind, only="right")
        assert term(Shaped("а б а б а б а б", 400, 400)) == 0.0


def test_the_score_after_the_floors_is_the_outcome() -> None:
    cut = Judgement({"math": Verdict(Outcome.OVER_LIMIT, -0.5)}, Outcome.OVER_LIMIT, -0.5)
    paid = RewardRule(recipe()).of([*judged(0), cut], ["", ""], [1, 1], "")
    assert paid.outcomes == paid.rewards == [0.0, -0.5]
