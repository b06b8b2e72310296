from typing import get_args

import pytest

from grpo_cli.recipe.checking.rules import check_rules
from grpo_cli.recipe.presets import PRESETS
from grpo_cli.recipe.sections.recipe import Algorithm, Recipe, Train


def train(**fields: object) -> Train:
    whole = {"model": "m", "data": {"train": "f", "prompt": "p"}, "verify": {"math": {}}}
    return Recipe.model_validate(whole | {"train": {"steps": 1} | fields}).train


def test_every_algorithm_has_a_preset_that_sets_every_field() -> None:
    assert set(get_args(Algorithm)) == set(PRESETS)
    assert len({tuple(sorted(preset)) for preset in PRESETS.values()}) == 1
    assert all(set(preset) <= set(Train.model_fields) for preset in PRESETS.values())


def test_leaving_the_key_out_is_the_default_preset_and_the_fields_say_so_too() -> None:
    plain = train()
    assert plain == train(algorithm="default")
    for name in PRESETS["default"]:
        assert Train.model_fields[name].default == getattr(plain, name), name


def test_a_field_beside_the_preset_wins_and_the_rest_stays() -> None:
    one = train(algorithm="dapo", clip={"high": 0.3})
    assert (one.clip.low, one.clip.high, one.dead_groups) == (0.2, 0.3, "resample")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_obeys_the_rules(name: str) -> None:
    whole = {"model": "m", "data": {"train": "f", "prompt": "p"}, "verify": {"math": {}}}
    recipe = Recipe.model_validate(whole | {"train": {"steps": 1, "algorithm": name}})
    assert check_rules(recipe, lambda path: False) == []


def test_presets_say_what_their_papers_say() -> None:
    assert (train(algorithm="grpo").loss, train(algorithm="grpo").kl.beta) == ("grpo", 0.04)
    assert train(algorithm="grpo_k1").kl.estimator == "k1_loss" and train(algorithm="grpo_k1").std_ddof == 1
    assert (train(algorithm="dr_grpo").loss, train(algorithm="dr_grpo").scale) == ("dr_grpo", "none")
    assert (train(algorithm="dapo").clip.high, train(algorithm="dapo").overlong) == (0.28, 0.2)
    assert (train(algorithm="gspo").ratio, train(algorithm="gspo").clip.high) == ("sequence", 4e-4)
    assert train(algorithm="gspo_token").ratio == "sequence_token"
    assert train(algorithm="cispo").clip.cap == 5.0
    assert (train(algorithm="rloo").baseline, train(algorithm="rloo").kl.estimator) == (
        "leave_one_out",
        "k1_reward",
    )
    assert train(algorithm="reinforce_pp").scale == "batch"
