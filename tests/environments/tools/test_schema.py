"""Functions as tools: the schema that transformers makes of them, and arguments checked by it."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.utils import get_json_schema

from grpo_cli.environments.tools.world import BadCall, checked, schema_of
from grpo_verifiers.kinds.functions.conventions import BadFunction
from tests.environments.tools import my_tools


@pytest.mark.parametrize(
    "function", [my_tools.add, my_tools.weather, my_tools.divide, my_tools.slow, my_tools.Counter().raise_by]
)
def test_a_schema_is_that_of_transformers(function: Any) -> None:
    assert schema_of(function) == get_json_schema(function)


def test_what_has_no_schema_is_told_with_its_place() -> None:
    with pytest.raises(BadFunction, match=r"`a` of the tool `untyped` \(.*my_tools.py:\d+\) has no type"):
        schema_of(my_tools.untyped)

    def bad(a: set[int]) -> None: ...

    with pytest.raises(BadFunction, match="has the type `set`: a tool takes str, int"):
        schema_of(bad)

    def many(*words: str) -> None: ...

    with pytest.raises(BadFunction, match="a tool has arguments by name"):
        schema_of(many)


ADD, WEATHER = schema_of(my_tools.add), schema_of(my_tools.weather)


def test_arguments_come_as_the_function_takes_them() -> None:
    assert checked(ADD, {"a": 3.0}, is_text=False) == {"a": 3}
    assert checked(ADD, {"a": "3", "b": "-4"}, is_text=True) == {"a": 3, "b": -4}
    assert checked(WEATHER, {"town": "7", "days": "[1, 2]"}, is_text=True) == {"town": "7", "days": [1, 2]}
    assert checked(WEATHER, {"town": "Graz", "days": None}, is_text=False) == {"town": "Graz", "days": None}


@pytest.mark.parametrize(
    ("schema", "arguments", "is_text", "said"),
    [
        (ADD, {"a": "3"}, False, '`a` must be an integer, not "3"'),
        (ADD, {"a": True}, False, "`a` must be an integer, not true"),
        (ADD, {"a": 1.5}, False, "`a` must be an integer, not 1.5"),
        (ADD, {"a": "three"}, True, "`a` must be an integer, not 'three'"),
        (ADD, {"a": None}, False, "`a` must be an integer, not null"),
        (ADD, {}, False, "`add` needs the argument `a`"),
        (ADD, {"a": 1, "c": 2}, False, "`add` has no argument `c`"),
        (WEATHER, {"town": "Graz", "unit": "k"}, False, "`unit` must be one of 'c', 'f', not 'k'"),
        (WEATHER, {"town": "Graz", "days": [1, "x"]}, False, '`days`[1] must be an integer, not "x"'),
        (WEATHER, {"town": ["Graz"]}, False, '`town` must be a string, not ["Graz"]'),
    ],
)
def test_a_bad_call_is_told(schema: Any, arguments: Any, is_text: bool, said: str) -> None:
    with pytest.raises(BadCall) as told:
        checked(schema, arguments, is_text=is_text)
    assert said in str(told.value)
