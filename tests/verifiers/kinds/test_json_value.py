"""`json`: schemas and golds that cannot be meant are refused before a single completion is judged."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_verifiers import BadGold, BadOption, Outcome, build


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "objekt"}, "not valid at type"),
        ({"$ref": "https://example.org/x.json"}, "refers to another document"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "nothing at `#/\\$defs/b`"),
    ],
)
def test_a_schema_that_cannot_be_meant_is_refused(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        build("json", json_schema=schema)


def test_references_inside_a_schema_are_followed() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}}
    verifier = build("json", compare=False, json_schema=schema)
    outcomes = [verifier.verify(text, {}).outcome for text in ("[1, 2]", '[1, "2"]')]
    verifier.close()
    assert outcomes == [Outcome.RIGHT, Outcome.WRONG]


@pytest.mark.parametrize(
    "row", [{}, {"answer": '{"a":'}, {"answer": float("nan")}, {"answer": {"a": float("inf")}}, {"answer": {1, 2}}]
)
def test_a_gold_that_json_cannot_say_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(BadGold):
        build("json").compile(row)


def test_too_many_comparisons_are_over_limit() -> None:
    gold = [[i, i + 1] for i in range(200)]
    text = str([[199 - i + 0.5, 1] for i in range(200)])
    got = build("json", order="free", rel_tol=1e-9).verify(text, {"answer": [gold, gold, gold]})
    assert got.outcome in (Outcome.WRONG, Outcome.OVER_LIMIT)
