"""Terms of the loss that micro-batches would change: refused, or said."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from grpo_cli.display.choose import SilentDisplay
from grpo_cli.errors import RecipeError
from grpo_cli.jobs.train.setup import check_whole
from grpo_cli.recipe.arithmetic import Batching
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.info import Level


class Heard(SilentDisplay):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.notes: list[str] = []

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """Keep it."""
        self.notes.append(text)


def said(trl: dict[str, Any], batch: Batching, world: int = 1) -> list[str]:
    """What is said of a recipe with these fields of TRL's."""
    recipe = Recipe.model_validate(
        {
            "grpo": 1,
            "model": "builtin:tiny",
            "data": {"train": "rows.jsonl", "prompt": "{q}"},
            "verify": {"regex": {"pattern": "x"}},
            "train": {"steps": 1, "trl": trl},
        }
    )
    heard = Heard()
    check_whole(recipe, batch, world, heard)
    return heard.notes


@pytest.mark.parametrize("coefficient", [0.01, None])
def test_a_routers_loss_over_parts_of_a_step_is_said(coefficient: float | None) -> None:
    trl = {"router_aux_loss_coef": coefficient}
    (note,) = said(trl, Batching(4, 3), world=2)
    assert "over 4 completions at a time, of 24 a step" in note
    assert said(trl, Batching(8, 1), world=2)
    assert not said(trl, Batching(8, 1))


@pytest.mark.parametrize("trl", [{}, {"router_aux_loss_coef": 0.0}, {"entropy_coef": 0.1}])
def test_nothing_is_said_where_parts_change_nothing(trl: dict[str, float]) -> None:
    assert not said(trl, Batching(4, 3))


def test_a_quantile_of_entropies_wants_the_whole_step() -> None:
    with pytest.raises(RecipeError, match="top_entropy_quantile"):
        said({"top_entropy_quantile": 0.5}, Batching(4, 3))
    assert not said({"top_entropy_quantile": 0.5}, Batching(12, 1))
