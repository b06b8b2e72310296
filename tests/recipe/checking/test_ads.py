"""What a recipe with `select: ads` may not say beside it, and how many rows it takes."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.errors import DataError
from grpo_cli.recipe.arithmetic import plan
from grpo_cli.recipe.checking.method import cluster_count
from grpo_cli.recipe.checking.rules import check_rules
from grpo_cli.recipe.sections.recipe import Recipe


def recipe(prompts: int = 16, sections: dict[str, Any] | None = None, **train: Any) -> Recipe:
    said: dict[str, Any] = {
        "model": {"path": "builtin:tiny"},
        "data": {"train": [{"from": "rows.jsonl"}], "prompt": "{question}"},
        "verify": {"exact": {"kind": "exact"}},
        "sample": {"prompts": prompts, "group": 8, "max_tokens": 8},
        "train": {"steps": 10, "lr": 1e-4, "select": "ads"} | train,
    }
    return Recipe.model_validate(said | (sections or {}))


def told(made: Recipe) -> list[str]:
    return [
        ".".join(map(str, one.path))
        for one in check_rules(made, lambda path: False)
        if "`ads" in str(one) or "ads" in str(one)
    ]


def test_ads_alone_is_right() -> None:
    assert told(recipe()) == []


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (recipe(dead_groups="resample"), "train.dead_groups"),
        (recipe(prompts=3), "sample.prompts"),
        (recipe(prompts=5, ads={"active": 6}), "sample.prompts"),
        (recipe(select="auto", ads={"active": 2}), "train.ads"),
        (recipe(select="uniform", ads_ok=True), "train.ads_ok"),
    ],
)
def test_what_cannot_go_with_it_is_named(made: Recipe, place: str) -> None:
    assert place in [".".join(map(str, one.path)) for one in check_rules(made, lambda path: False)]


def test_few_rows_are_refused_unless_that_is_meant() -> None:
    with pytest.raises(DataError, match="needs 2,000 training rows or more, there are 1,999"):
        plan(recipe(), 1999)
    assert plan(recipe(), 2000).rows == 2000
    assert plan(recipe(ads_ok=True), 300).rows == 300
    assert plan(recipe(select="auto"), 300).rows == 300


def test_a_reset_before_windows_can_cross_is_refused() -> None:
    """4,096 rows: 64 clusters of 64, windows of 4; four ways of 60 places at a sixteenth of a visit a step."""
    with pytest.raises(DataError, match="take 3,840 steps"):
        plan(recipe(ads={"reset": 3839}), 4096)
    assert plan(recipe(ads={"reset": 3840}), 4096).rows == 4096
    assert plan(recipe(ads={"reset": 256}, ads_ok=True), 4096).rows == 4096


def test_how_many_clusters_rows_make() -> None:
    assert [cluster_count(n) for n in (10, 64, 2000, 4096, 100_000)] == [1, 1, 31, 64, 64]
