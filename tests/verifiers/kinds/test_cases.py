"""Labelled completions for every verifier of short answers and forms: what the verdict should be, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import Outcome, Verifier, build

CASES = Path(__file__).parents[2] / "cases"
KINDS = [
    *(
        "agrees",
        "choice",
        "equation",
        "exact",
        "format",
        "instructions",
        "json",
        "numeric",
        "reasoning_gym",
        "regex",
        "set",
    )
]
_built: dict[str, Verifier] = {}


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    for verifier in _built.values():
        verifier.close()
    _built.clear()


def cases(kind: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / f"{kind}.jsonl").read_text().splitlines()]


def verifier(kind: str, options: dict[str, Any]) -> Verifier:
    key = json.dumps([kind, options], sort_keys=True)
    if key not in _built:
        _built[key] = build(kind, **options)
    return _built[key]


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_forty_cases_or_more(kind: str) -> None:
    found = cases(kind)
    assert len(found) >= 40 and {case["outcome"] for case in found} >= {"right", "wrong"}


@pytest.mark.parametrize("case", [case for kind in KINDS for case in cases(kind)], ids=lambda case: case["id"])
def test_the_verdict_is_as_labelled(case: dict[str, Any]) -> None:
    kind = case["id"].rpartition("-")[0]
    if kind == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    got = verifier(kind, case.get("options", {})).verify(case["completion"], case["row"])
    assert got.outcome == Outcome(case["outcome"]), f"{case['why']}: {got}"
    if "score" in case:
        assert got.score == pytest.approx(case["score"])
