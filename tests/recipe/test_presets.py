from typing import get_args

import pytest

from grpo_cli.recipe.checking.rules import check_rules
from grpo_cli.recipe.sections.recipe import Algorithm, Recipe, Train
from grpo_cli.recipe.widening import PRESETS


def train(**fields: object) -> Train:
    return Recipe.model_validate(whole({"steps": 1} | fields)).train


def whole(train: object) -> dict[str, object]:
    data = {"train": "f", "prompt": "p"}
    return {"model": "m", "data": data, "verify": {"math": {}}, "train": train}


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
    world = {"environment": {"python": "e.py:E"}} if PRESETS[name]["credit"] else {}
    recipe = Recipe.model_validate(whole({"steps": 1, "algorithm": name}) | world)
    assert check_rules(recipe, lambda path: False) == []


def test_presets_say_what_their_papers_say() -> None:
    assert (train(algorithm="grpo").loss, train(algorithm="grpo").kl.beta) == ("grpo", 0.04)
    assert train(algorithm="grpo_k1").kl.estimator == "k1_loss" and train(algorithm="grpo_k1").std_ddof == 1
    assert (train(algorithm="dr_grpo").loss, train(algorithm="dr_grpo").scale) == ("dr_grpo", "none")
    assert (train(algorithm="dapo").clip.high, train(algorithm="dapo").overlong) == (0.28, 0.2)
    assert (train(algorithm="gspo").ratio, train(algorithm="gspo").clip.high) == ("sequence", 4e-4)
    assert train(algorithm="gspo_token").ratio == "sequence_token"
    assert train(algorithm="cispo").clip.cap == 5.0
    assert (train(algorithm="rloo").baseline, train(algorithm="rloo").kl.estimator) == ("leave_one_out", "k1_reward")
    assert train(algorithm="reinforce_pp").scale == "batch"
    gigpo = train(algorithm="gigpo")
    assert gigpo.credit is not None and gigpo.scale == "none"
    assert (gigpo.credit.method, gigpo.credit.norm) == ("gigpo", "mean")
    assert (gigpo.credit.gamma, gigpo.credit.weight) == (0.95, 1.0)


def test_what_a_preset_says_of_turns_goes_with_its_own_scale_and_method() -> None:
    both = train(algorithm="gigpo", scale="group")
    assert both.credit is not None and (both.credit.norm, both.turn_norm) == (None, "std")
    half = train(algorithm="gigpo", credit={"weight": 0.5})
    assert half.credit is not None and (half.credit.weight, half.credit.norm) == (0.5, "mean")
    other = train(algorithm="gigpo", credit={"method": "milestones"})
    assert other.credit is not None and (other.credit.method, other.credit.gamma) == ("milestones", None)
    assert train(algorithm="gigpo", credit=None).credit is None
    again = Recipe.model_validate(whole(both.model_dump(by_alias=True))).train
    assert again == both


@pytest.mark.parametrize("method", ["gigpo", "planner"])
@pytest.mark.parametrize(("scale", "norm"), [("group", "std"), ("none", "mean")])
def test_both_parts_are_divided_by_one_kind_of_number(method: str, scale: str, norm: str) -> None:
    assert train(credit={"method": method}, scale=scale).turn_norm == norm
    other = "mean" if norm == "std" else "std"
    recipe = {"model": "m", "data": {"train": "f", "prompt": "p"}, "environment": {"python": "e.py:E"}}
    for said, wrong in ((None, False), (norm, False), (other, True)):
        one = Recipe.model_validate(
            recipe | {"train": {"steps": 1, "scale": scale, "credit": {"method": method, "norm": said}}}
        )
        found = [f for f in check_rules(one, lambda path: True) if f.path == ("train", "credit", "norm")]
        assert bool(found) == wrong, said
        assert all("unit of the reward" in f.message for f in found)
