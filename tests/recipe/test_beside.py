"""Which parts of a reward are paid beside the outcome, and what is said of them before the first step."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.recipe.beside import paid_beside, trained_on_alone, unlearnable, verifiers_beside
from grpo_cli.recipe.sections.recipe import Recipe

FORM = {"math": {}, "form": {"kind": "regex", "pattern": "x", "weight": 0.1}}


def recipe(**more: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": "tasks:addition3", "prompt": "{question}", "answer": "{answer}"},
            "verify": {"math": {}},
            **more,
            "train": {"steps": 1, "lr": 1e-3} | more.get("train", {}),
        }
    )


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, []),
        ({"verify": FORM}, ["form"]),
        ({"verify": FORM | {"seen": {"kind": "regex", "pattern": "y", "weight": 0}}}, ["form"]),
        ({"verify": FORM, "train": {"alive_by": ["math", "form"]}}, []),
        ({"verify": FORM, "combine": {"gate": {"form": "needs_right"}}}, []),
        ({"verify": FORM, "combine": {"gate": {"form": "must_pass"}}}, ["form"]),
        ({"verify": FORM, "combine": "first"}, []),
        ({"verify": FORM, "combine": "min"}, []),
        ({"verify": FORM, "combine": {"by": "kind"}}, []),
        ({"train": {"algorithm": "dapo"}}, ["overlong"]),
        ({"shaping": {"overlong": {}, "repetition": {}, "language": {}}}, ["overlong", "repetition", "language"]),
        ({"shaping": {"length": {}}}, []),
        ({"shaping": {"repetition": {"only": "right"}, "language": {"weight": 0}}}, []),
        ({"environment": {"python": "environments:keydoor"}, "verify": {}}, ["invalid_penalty"]),
        ({"environment": {"python": "environments:keydoor", "invalid_penalty": 0}, "verify": {}}, []),
    ],
)
def test_what_is_paid_beside_the_outcome(more: dict[str, Any], names: list[str]) -> None:
    assert paid_beside(recipe(**more)) == names


@pytest.mark.parametrize(
    ("train", "is_said"),
    [
        ({}, False),
        ({"alive_by": "reward"}, True),
        ({"alive_by": "reward", "scale": "batch"}, True),
        ({"alive_by": "reward", "scale": "none"}, False),
        ({"alive_by": "reward", "reward_combine": "normalise_then_sum"}, True),
        ({"alive_by": "reward", "control": "random"}, False),
        ({"alive_by": "reward", "algorithm": "ppo"}, False),
        ({"alive_by": ["math"]}, False),
    ],
)
def test_a_warning_where_wrong_answers_would_train_on_it_alone(train: dict[str, Any], is_said: bool) -> None:
    said = ["an all-wrong group trains on `form` alone, at full size whatever its weight"]
    assert trained_on_alone(recipe(verify=FORM, train=train)) == (said if is_said else [])


def test_each_term_has_its_own_warning() -> None:
    many = recipe(verify=FORM, shaping={"repetition": {}}, train={"alive_by": "reward", "overlong": 0.2})
    assert [text.split("`")[1] for text in trained_on_alone(many)] == ["form", "repetition", "overlong"]


def test_what_the_gate_keeps_back_is_named_with_what_to_do() -> None:
    found = unlearnable(recipe(verify=FORM))
    assert found is not None
    assert found[0] == "with `alive_by: outcome` `form` cannot be learned from them: name it, or warm up"
    assert "train.alive_by: [math, form]" in found[1]
    two = unlearnable(recipe(verify=FORM | {"tags": {"kind": "format"}}, train={"alive_by": ["math", "form"]}))
    assert two is not None
    assert two[0] == "with `alive_by: [math, form]` `tags` cannot be learned from them: name it, or warm up"
    assert unlearnable(recipe()) is None
    assert unlearnable(recipe(verify=FORM, train={"alive_by": "reward"})) is None
    assert verifiers_beside(recipe(verify=FORM)) == ["form"]
