"""The labelled answers: every undisputed row of `math_dev.jsonl` and of the later sets, and our own rows, one for every mistake."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import BadGold, Outcome, Verdict, build
from grpo_verifiers.verifier import Verifier

CASES = Path(__file__).resolve().parents[2] / "cases"


@pytest.fixture(scope="module")
def maths() -> Iterator[Verifier]:
    verifier = build("math")
    verifier.start()
    yield verifier
    verifier.close()


def rows(name: str) -> list[dict[str, Any]]:
    with (CASES / name).open() as file:
        return [json.loads(line) for line in file]


def judged(maths: Verifier, row: dict[str, Any]) -> Verdict | None:
    """The verdict, or None where the gold itself is refused."""
    try:
        return maths.verify(row["response"], {"answer": row["gold"]})
    except BadGold:
        return None


def mistakes(maths: Verifier, found: list[dict[str, Any]]) -> list[str]:
    wrong = []
    for row in found:
        verdict = judged(maths, row)
        if (verdict is not None and verdict.outcome is Outcome.RIGHT) != bool(row["expected"]):
            wrong.append(f"{row.get('id', '')} gold {row['gold']!r} response {str(row['response'])[-80:]!r}: {verdict}")
    return wrong


def test_all_undisputed_dev_rows_are_judged_as_labelled(maths: Verifier) -> None:
    found = [row for row in rows("math_dev.jsonl") if not row.get("debatable")]
    assert len(found) == 552
    assert mistakes(maths, found) == []


def test_our_own_rows_are_judged_as_labelled(maths: Verifier) -> None:
    assert mistakes(maths, rows("math_own.jsonl")) == []


@pytest.mark.parametrize(
    ("name", "count"),
    [("math_dev2.jsonl", 148), ("math_dev3.jsonl", 93), ("math_fresh.jsonl", 320), ("math_fresh2.jsonl", 300)],
)
def test_later_sets_are_judged_as_labelled(maths: Verifier, name: str, count: int) -> None:
    """Written by others than the verifier, against its tiers; half of the answers are wrong."""
    found = rows(name)
    assert len(found) == count
    assert mistakes(maths, found) == []


@pytest.mark.parametrize(
    ("name", "count", "kept"),
    [("math_fresh3.jsonl", 320, 317), ("math_fresh4.jsonl", 300, 299), ("math_fresh5.jsonl", 150, 146)],
)
def test_blind_sets_are_judged_as_labelled_but_for_what_is_disputed(
    maths: Verifier, name: str, count: int, kept: int
) -> None:
    found = rows(name)
    assert len(found) == count
    plain = [row for row in found if "debatable" not in row]
    assert len(plain) == kept
    assert mistakes(maths, plain) == []


def test_no_row_is_late_or_without_a_verdict(maths: Verifier) -> None:
    maths.verify("\\boxed{\\sin 2x}", {"answer": "2\\sin x\\cos x"})  # loads the child, which is no part of a deadline
    for row in rows("math_dev.jsonl"):
        start = time.perf_counter()
        verdict = judged(maths, row)
        assert time.perf_counter() - start < row["max_s"], row["id"]
        assert verdict is None or verdict.outcome is not Outcome.ERROR, row["id"]
