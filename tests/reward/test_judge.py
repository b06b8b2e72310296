"""One judge for all jobs: who judges a row, what counts as right, and what leaves a sample without a reward."""

from __future__ import annotations

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.sections.recipe import Recipe, Verify
from grpo_cli.reward.judge import Judge, Task, proxy_warnings
from grpo_verifiers import Outcome
from grpo_verifiers.verdict import Verdict

RIGHT, WRONG = Verdict(Outcome.RIGHT, 1.0), Verdict(Outcome.WRONG, 0.0)
ERROR = Verdict(Outcome.ERROR, None, reason="broken")


def judge(**verify: Verify) -> Judge:
    return Judge(verify)


def two() -> Judge:
    return judge(
        letter=Verify(kind="regex", options={"pattern": "[a-z]"}, weight=0.5),
        digit=Verify(kind="regex", options={"pattern": "[0-9]"}, primary=True),
    )


def test_only_a_learned_score_is_called_a_proxy() -> None:
    specs = {"math": Verify(kind="math"), "taste": Verify(kind="reward_model")}
    assert proxy_warnings(specs) == [
        "`taste` is a learned proxy: check samples by eye, a policy learns what it overrates"
    ]


def test_every_verifier_judges_every_completion_in_order() -> None:
    task = Task({"letter": None, "digit": None})
    found = two().judge(["a", "1", "a1", "-"], [task] * 4)
    assert [one.reward for one in found] == [0.5, 1.0, 1.5, 0.0]
    assert [one.is_right for one in found] == [False, True, True, False]
    assert [list(one.verdicts) for one in found] == [["letter", "digit"]] * 4


def test_an_error_of_a_verifier_that_counts_leaves_no_reward() -> None:
    found = two().combine({"letter": ERROR, "digit": RIGHT})
    assert found.reward is None
    assert two().combine({"letter": WRONG, "digit": RIGHT}).reward == 1.0


def test_an_error_of_the_primary_is_the_outcome() -> None:
    found = two().combine({"letter": RIGHT, "digit": ERROR})
    assert (found.outcome, found.reward, found.is_right) == (Outcome.ERROR, None, False)


def test_by_sends_each_row_to_the_verifier_it_names() -> None:
    recipe = Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": "tasks:addition3", "prompt": "{question}"},
            "verify": {"letter": {"kind": "regex", "pattern": "[a-z]"}, "digit": {"kind": "regex", "pattern": "[0-9]"}},
            "combine": {"method": "by", "by": "kind"},
            "sample": {"prompts": 1, "group": 2},
            "train": {"steps": 1, "lr": 1e-3},
        }
    )
    made = Judge.of(recipe)
    golds = [{"letter": {}, "digit": None}, {"letter": None, "digit": {}}]
    found = made.judge(["a", "a"], [Task(gold) for gold in golds])
    assert [(list(one.verdicts), one.reward) for one in found] == [(["letter"], 1.0), (["digit"], 0.0)]


def test_nothing_to_judge_is_no_error() -> None:
    assert two().judge([], []) == []


def test_an_option_that_a_verifier_does_not_have_is_a_mistake_of_the_recipe() -> None:
    with pytest.raises(RecipeError) as caught:
        judge(letter=Verify(kind="regex", options={"patern": "a"}))
    assert caught.value.mistakes[0].place == "`verify.letter`"
