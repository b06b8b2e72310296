import pytest

from grpo_cli.jobs.explain.methods import ALGORITHMS as ABOUT
from grpo_cli.jobs.explain.methods import describe_algorithm as describe
from grpo_cli.jobs.explain.methods import describe_beside, render_beside
from grpo_cli.jobs.explain.methods import render_algorithm as render
from grpo_cli.recipe.checking.episodes import CREDITS
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


def test_methods_beside_the_algorithm_say_what_their_papers_own_tables_show() -> None:
    mixed = " ".join(render_beside(describe_beside("n_grpo")).split())
    assert "Qwen3-1.7B-Base 37.9 -> 29.0; no seeds" in mixed and "set with `sample.mix: {rate: 0.1}`" in mixed
    assert "its constants are ours" in render_beside(describe_beside("split"))
    assert (
        "1.5-2 x GRPO's wall time" in CREDITS["rredcot"] and "AIME25 .600 -> .583, without seeds" in CREDITS["rredcot"]
    )
