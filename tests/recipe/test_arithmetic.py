import pytest

from grpo_cli.errors import DataError, Exit
from grpo_cli.recipe.arithmetic import idle_reuse, plan
from grpo_cli.recipe.sections.recipe import Recipe


def recipe(
    prompts: int = 8,
    group: int = 4,
    steps: int = 10,
    inner_epochs: int = 1,
    *,
    reuse: bool = False,
    **train: str,
) -> Recipe:
    return Recipe.model_validate(
        {
            "model": "m",
            "data": {"train": "f", "prompt": "p"},
            "verify": {"math": {}},
            "sample": {"prompts": prompts, "group": group, "max_tokens": 100, "reuse": {} if reuse else None},
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


def test_reuse_that_never_meets_a_row_again_is_named() -> None:
    def said(rows: int, **more: str) -> str | None:
        asked = recipe(reuse=True, **more)
        return idle_reuse(asked, plan(asked, rows))

    assert said(80) == "`sample.reuse` never acts: none of 80 rows is drawn twice"
    assert said(79) is None
    assert said(80, dead_groups="resample") is said(80, select="priority") is None
    assert idle_reuse(recipe(), plan(recipe(), 80)) is None
