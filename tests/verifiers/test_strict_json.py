"""JSON text in rows: a key said twice is no verdict, wherever a verifier reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grpo_verifiers import BadGold, build
from grpo_verifiers.strict_json import RepeatedKey, loads, marked, problem

TWICE = '{"input": "1", "input": "2", "output": "4"}'


def test_the_key_that_is_said_twice_is_named_wherever_it_stands() -> None:
    for text, key in (
        ('{"a": 1, "b": 2, "a": 3}', "a"),
        ('[{"x": {"y": [{"z": 1, "z": 1}]}}]', "z"),
        ('{"\\u0061": 1, "a": 1}', "a"),
        ('{"": 1, "": 2}', ""),
    ):
        with pytest.raises(RepeatedKey, match=f"key `{key}` is said twice"):
            loads(text)
        assert str(problem(marked(text))) == f"key `{key}` is said twice"
    value = {"a": [{"b": 1}, {"b": 1}], "b": {"a": 1}}
    assert loads(json.dumps(value)) == value and problem(marked(json.dumps(value))) is None


ROWS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "json gold": ("json", {}, {"answer": '{"a": 1, "a": 2}'}),
    "json schema": ("json", {"compare": False}, {"schema": '{"type": "array", "type": "object"}'}),
    "tests of code": ("code", {}, {"tests": f"[{TWICE}]"}),
    "tests of command": ("command", {"language": "bash"}, {"tests": f"[{TWICE}]"}),
    "APPS": ("code", {}, {"input_output": '{"inputs": ["1"], "outputs": ["1"], "outputs": ["2"]}'}),
    "AceCode": ("code", {}, {"question": "q", "test_cases": '[{"a": 1, "a": 2}]'}),
    "verl": ("code", {}, {"reward_model": {"ground_truth": '{"inputs": [], "inputs": ["1"], "outputs": ["1"]}'}}),
    "LiveCodeBench": ("code", {}, {"public_test_cases": f"[{TWICE}]"}),
    "LiveCodeBench value": (
        "code",
        {},
        {
            "public_test_cases": '[{"input": "{\\"a\\": 1, \\"a\\": 2}", "output": "1"}]',
            "metadata": '{"func_name": "f"}',
        },
    ),
    "LiveCodeBench metadata": (
        "code",
        {},
        {
            "public_test_cases": '[{"input": "1", "output": "2", "testtype": "functional"}]',
            "metadata": '{"func_name": "f", "func_name": "g"}',
        },
    ),
    "verl's function": (
        "python",
        {"function": "tests.verifiers.kinds.custom_functions:of_verl"},
        {"reward_model": '{"ground_truth": "4", "ground_truth": "5"}'},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS)
def test_json_text_of_a_row_that_says_a_key_twice_is_no_verdict(case: str) -> None:
    kind, options, row = ROWS[case]
    verifier = build(kind, **options)
    try:
        with pytest.raises(BadGold, match=r"said twice|repeated_key"):
            verifier.compile(row)
    finally:
        verifier.close()
