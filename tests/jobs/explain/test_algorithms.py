import pytest

from grpo_cli.jobs.explain.methods import ALGORITHMS as ABOUT
from grpo_cli.jobs.explain.methods import describe_algorithm as describe
from grpo_cli.jobs.explain.methods import render_algorithm as render
from grpo_cli.recipe.widening import PRESETS


def test_every_preset_has_a_formula_and_a_source() -> None:
    assert set(ABOUT) == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_said_comes_from_the_preset(name: str) -> None:
    said = render(describe(name))
    assert f"train.loss: {PRESETS[name]['loss']}" in said
    assert f"train.kl.estimator: {PRESETS[name]['kl']['estimator']}" in said
    assert all(len(line) <= 240 for line in said.splitlines())


def test_k1_in_the_loss_is_said_to_anchor_nothing() -> None:
    assert "anchors nothing" in render(describe("grpo_k1"))


def test_cispo_names_its_cap_convention() -> None:
    assert "absolute cap" in render(describe("cispo"))
