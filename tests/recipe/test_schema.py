from typing import Any

import jsonschema
import pytest

from grpo_cli.recipe.reading.source import parse, shipped_recipes
from grpo_cli.recipe.schema import recipe_schema

SCHEMA = recipe_schema()
LEAST = {"model": "m", "data": {"train": "f", "prompt": "p"}, "verify": {"math": None}, "train": {"steps": 1}}


def is_valid(data: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMA).is_valid(data))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_shipped_recipe_is_valid() -> None:
    for name, path in shipped_recipes().items():
        data = parse(path.read_text(encoding="utf-8"), name).data
        errors = [e.message for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(data)]
        assert errors == [], name


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"path": "m", "lora": {"r": 4}}},
        {"data": {"train": ["a", {"from": "b", "weight": 2}], "eval": "c", "prompt": "p"}},
        {"verify": {"math": {"tolerance": 0.1}, "second": {"kind": "math", "weight": 0.5}}},
        {"train": {"steps": 1, "trl": {"weight_decay": 0.1}}},
        {"warmup": [{"demonstration": "d", "steps": 1, "lr": 0.1}]},
    ],
)
def test_short_and_long_forms_are_valid(change: dict[str, Any]) -> None:
    assert is_valid(LEAST) and is_valid(LEAST | change)


@pytest.mark.parametrize(
    "change",
    [
        {"sample": {"groop": 3}},
        {"train": {}},
        {"train": {"steps": 1, "trl": {"num_generations": 2}}},
        {"verify": {"math": {"unknown": 1}}},
        {"verify": {"mine": {"weight": 1}}},
        {"verify": {}},
    ],
)
def test_what_load_refuses_is_not_valid(change: dict[str, Any]) -> None:
    assert not is_valid(LEAST | change)


def test_an_environment_may_be_all_that_judges() -> None:
    bare = {key: value for key, value in LEAST.items() if key != "verify"}
    assert is_valid(bare | {"environment": {"python": "environments:guess"}}) and not is_valid(bare)


def test_an_overlay_may_leave_things_out() -> None:
    assert is_valid({"extends": "quickstart", "data": {"system": "x"}}) and not is_valid({"data": {"system": "x"}})


def test_fields_carry_their_description() -> None:
    assert "Raising it" in SCHEMA["$defs"]["Sample"]["properties"]["group"]["description"]
