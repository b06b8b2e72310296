"""Rows of public data sets with their own solution, which must be paid, and a stub, which must not.

The rows lie beside the repository, in `../shared/cases/real_rows`, and are judged as they are published. Without the folder
these tests are skipped, and fail where `CI` is set.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from grpo_verifiers import Sample, Verdict
from grpo_verifiers.program import CodeOptions, CodeVerifier

FOLDER = Path(__file__).parents[3].parent / "shared" / "cases" / "real_rows"
NOT_CARRIED = {
    # the tests compare objects of the solution's classes by its own `==`: `trusted_objects`
    "clock": "untrusted_objects",
    "complex-numbers": "untrusted_objects",
    "dot-dsl": "untrusted_objects",
    # a mock in the place of a method
    "ClassEval_84": "not_supported",
}
"""Solutions without a verdict, with the reason; none is refused."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a row: its name, and the verdicts on its solution and on its stub."""

    name: str
    solution: Verdict
    stub: Verdict


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    if not FOLDER.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"there are no rows in {FOLDER}")
        pytest.skip(f"there are no rows in {FOLDER}")
    rows = [json.loads(line) for path in sorted(FOLDER.glob("*.jsonl")) for line in path.open()]
    # a busy machine is no reason to refuse a right program
    verifier = CodeVerifier(CodeOptions(timeout=20.0))
    try:
        golds = [verifier.compile(row["row"]) for row in rows]
        verdicts = iter(
            verifier.judge(
                [
                    Sample(row[which], gold)
                    for row, gold in zip(rows, golds, strict=True)
                    for which in ("solution", "stub")
                ]
            )
        )
        return [Judged(row["id"], next(verdicts), next(verdicts)) for row in rows]
    finally:
        verifier.close()


def test_solutions_are_paid(judged: list[Judged]) -> None:
    known = [j for j in judged if j.solution.score is not None]
    refused = {j.name: j.solution.reason for j in known if j.solution.score != 1.0}
    assert refused == {}


def test_no_stub_is_paid(judged: list[Judged]) -> None:
    assert [j.name for j in judged if j.stub.score not in (None, 0.0)] == []


def test_what_leaves_a_row_without_a_verdict_is_known(judged: list[Judged]) -> None:
    left = {j.name: v.reason for j in judged for v in (j.solution, j.stub) if v.score is None}
    assert {n: reason for n, reason in left.items() if reason != "no_library"} == NOT_CARRIED, left
