from typing import Any

import pytest

from grpo_cli.errors import DataError, Exit
from grpo_cli.recipe.arithmetic import evaluations, plan, unreached
from grpo_cli.recipe.sections.recipe import Recipe


def recipe(prompts: int = 8, group: int = 4, steps: int = 10, inner_epochs: int = 1, **train: str) -> Recipe:
    return Recipe.model_validate(
        {
            "model": "m",
            "data": {"train": "f", "prompt": "p"},
            "verify": {"math": {}},
            "sample": {"prompts": prompts, "group": group, "max_tokens": 100},
            "train": {"steps": steps, "inner_epochs": inner_epochs, **train},
        }
    )


def test_the_plan_counts_prompts_completions_tokens_and_epochs() -> None:
    made = plan(recipe(), 20)
    assert (made.prompts_step, made.completions_step, made.tokens_step) == (8, 32, 3200)
    assert (made.steps_epoch, made.rows_dropped, made.epochs) == (2, 4, 5.0)


def test_inner_epochs_multiply_optimizer_steps_and_not_rows() -> None:
    made = plan(recipe(steps=10, inner_epochs=4), 80)
    assert (made.steps, made.updates, made.epochs) == (10, 40, 1.0)
    assert "10 steps with 40 optimizer steps = 1 epochs" in made.text()


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_rows_that_fill_no_step_are_refused(rows: int) -> None:
    with pytest.raises(DataError, match="0 steps would run") as caught:
        plan(recipe(), rows)
    assert caught.value.code is Exit.DATA
    assert caught.value.hint


@pytest.mark.parametrize(
    "learns",
    [
        {"train": {"method": "prefer", "steps": 3}, "prefer": {"data": "pairs.jsonl"}},
        {"train": {"method": "sft"}, "sft": [{"demonstration": "{a}", "steps": 3, "lr": 1e-3}]},
    ],
)
def test_where_nothing_is_drawn_any_number_of_rows_is_enough_but_none(learns: dict[str, object]) -> None:
    said = {"model": "m", "data": {"train": "f", "prompt": "p"}, "verify": {"math": {}}}
    asked = Recipe.model_validate({**said, "sample": {"prompts": 8}, **learns})
    made = plan(asked, 2)
    assert made.steps == 3 and made.text().splitlines() == ["3 steps, nothing is drawn", "2 rows"]
    with pytest.raises(DataError, match="0 training rows"):
        plan(asked, 0)


def test_exactly_one_batch_is_enough() -> None:
    assert plan(recipe(), 8).steps_epoch == 1


def said_by(steps: int, context: int | None = None, **sections: Any) -> list[str]:
    base = {
        "model": "m",
        "data": {"train": "f", "eval": "h", "prompt": "p"},
        "verify": {"math": {}},
        "sample": {"max_tokens": 100},
        "train": {"steps": steps},
    }
    merged = {
        name: {**base.get(name, {}), **more} if isinstance(more, dict) else more for name, more in sections.items()
    }  # type: ignore[dict-item]
    return unreached(Recipe.model_validate(base | merged), steps, context)


CANARY = {"canary": {"from": "c", "every": 20}}
UNREACHED = {
    "a warm-up of the rate": ({"train": {"lr_warmup_steps": 10}}, 2, "the rate rises to 10% of `train.lr`"),
    "as long as the run": ({"train": {"lr_warmup_steps": 10}}, 10, "the rate rises to 90% of `train.lr`"),
    "of several updates a step": (
        {"train": {"lr_warmup_steps": 10, "inner_epochs": 2, "mini_batches": 2}},
        2,
        "the rate rises to 18% of `train.lr`",
    ),
    "a warm-up in a warm-up": (
        {"warmup": [{"demonstration": "d", "steps": 5, "lr": 1}]},
        9,
        "`warmup[0].lr_warmup_steps: 10` is more than its 5 steps: the rate rises to 50% of its `lr`",
    ),
    "a warm-up in sft": (
        {"train": {"method": "sft"}, "sft": [{"demonstration": "d", "steps": 4, "lr": 1}]},
        4,
        "`sft[0].lr_warmup_steps: 10` is more than its 4 steps",
    ),
    "evaluations": ({"eval": {"every": 50}}, 20, "nothing is measured between the first and the last"),
    "checkpoints": ({"run": {"save_every": 50}}, 20, "only the last is saved"),
    "patience": ({"eval": {"every": 5}, "stop": {"patience": 40}}, 20, "it never stops the run"),
    "the KL": ({"monitor": {"kl": {"every": 50}}}, 20, "the KL is never measured"),
    "canaries": ({"monitor": CANARY}, 19, "it is asked before and after only"),
    "resets": ({"train": {"select": "ads", "ads": {"reset": 30}}}, 20, "the windows never go back"),
    "evaluations of a part": ({"eval": {"every": 5, "between": 64, "limit": 64}}, 20, "all evaluations are alike"),
    "a length term": ({"shaping": {"length": {}}}, 20, "`shaping.length` begins at 256 tokens"),
    "an overlong term": ({"shaping": {"overlong": {"max_tokens": 200}}}, 20, "`shaping.overlong` begins at 160 tokens"),
    "prompts": ({"data": {"max_prompt_tokens": 1000}}, 20, "prompts above 412 are left out"),
}


@pytest.mark.parametrize("case", UNREACHED)
def test_lengths_that_contradict_each_other_are_said_with_what_they_come_to(case: str) -> None:
    sections, steps, wanted = UNREACHED[case]
    (said,) = said_by(steps, 512, **sections)
    assert wanted in said


def test_lengths_that_fit_are_not_spoken_of() -> None:
    assert said_by(2) == []  # what is left out is measured every so often, in a run of any length
    assert said_by(20, 512, train={"lr_warmup_steps": 19}, eval={"every": 20}, run={"save_every": 20}) == []
    assert said_by(20, None, data={"max_prompt_tokens": 1000}) == []
    fits = {"overlong": {"max_tokens": 120}, "length": {"target": 60}}
    assert said_by(20, 512, shaping=fits, data={"max_prompt_tokens": 412}, monitor={"canary": {"from": "c"}}) == []


def test_a_critics_warm_up_is_held_against_the_steps_that_epochs_take() -> None:
    said = {"algorithm": "ppo", "steps": 0, "epochs": 2.0}
    base = recipe().model_dump(by_alias=True, mode="json", exclude={"train"})
    assert plan(Recipe.model_validate(base | {"train": said}), 80).steps == 20
    with pytest.raises(DataError, match="20 steps of warm-up in a run of 20") as caught:
        plan(Recipe.model_validate(base | {"train": {**said, "critic": {"warmup_steps": 20}}}), 80)
    assert "train.critic.warmup_steps" in caught.value.hint


@pytest.mark.parametrize(
    ("spec", "more", "counted"),
    [
        ({}, {}, {50 * 4 + 50: 2}),
        ({"greedy": False, "samples": 2}, {}, {100: 2}),
        ({"limit": 8}, {}, {8 * 4 + 50: 2}),
        # steps 3, 6, 9; the last step is evaluated as the end
        ({"every": 3}, {}, {250: 2 + 3}),
        ({"every": 5}, {}, {250: 2 + 1}),
        ({"every": 3, "between": 4}, {}, {250: 2, 16: 3}),
        ({"every": 3, "between": 4}, {"stop": {"patience": 2}}, {250: 5}),
    ],
)
def test_the_completions_of_all_evaluations(
    spec: dict[str, object], more: dict[str, object], counted: dict[int, int]
) -> None:
    said = recipe().model_dump(by_alias=True, exclude_none=True) | {"eval": spec, **more}
    assert +evaluations(Recipe.model_validate(said), 10, 50) == counted
    assert not evaluations(recipe(), 10, 0)
