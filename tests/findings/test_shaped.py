"""W62 and W63: what is paid beside the outcome, and no word of it where nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.findings.health import over_run, right_paid_as_wrong, shaping_alone
from grpo_cli.jobs.explain.subjects import describe_finding as describe
from grpo_cli.jobs.explain.subjects import rules
from tests.builders.paid_groups import shaped_run

COLLAPSES: list[list[float | None]] = [
    [0.57, 0.84, 0.91, 1.0, 1.0, 1.0],
    [0.84, 0.7, 0.8, 0.9, 1.0, 1.0],
    [0.6, 0.59, 0.7, 0.71, 0.95, 1.0],
    [0.7345, 0.8287, 0.5518, None, None, None],
]
"""`shape/alone` by step, as in runs of the quickstart with 65 % of the rows out of reach."""


def lines(key: str, values: list[float | None]) -> list[dict[str, Any]]:
    return [{"step": i + 1, key: value, "group/count": 16} for i, value in enumerate(values)]


@pytest.mark.parametrize(("shares", "step"), list(zip(COLLAPSES, [4, 3, 5, 4], strict=True)))
def test_a_run_that_trains_on_shaping_alone_is_told(shares: list[float | None], step: int) -> None:
    (found,) = over_run(lines("shape/alone", list(shares)))
    assert (found.code, found.step) == ("W62", step)
    assert "train.alive_by: outcome" in found.hint


@pytest.mark.parametrize(
    "shares",
    [
        [0.33, 0.36, 0.12, 0.02, 0.10],
        [0.447, 0.4317, 0.3537, 0.3824, 0.3824, 0.2384],
        [0.7, 0.8, None, None],
        [0.7, 0.8, 0.6, 0.7, 0.8],
        [0.9, 0.4, 0.4, None, 0.4, 0.9],
        [0.0] * 20,
        [None] * 20,
    ],
)
def test_what_is_less_or_passes_is_not_said(shares: list[float | None]) -> None:
    assert over_run(lines("shape/alone", shares)) == []


def test_right_answers_that_are_paid_as_wrong_ones_are_said() -> None:
    (found,) = over_run(lines("group/inverted", [0.2] * 12))
    assert (found.code, found.step) == ("W63", 10)
    assert over_run(lines("group/inverted", [0.04] * 20)) == []
    # of steps without a right answer nothing is measured
    assert over_run(lines("group/inverted", [None, None, None, 0.2] * 5)) == []


def test_both_are_explained() -> None:
    assert rules()["W62"] is shaping_alone and rules()["W63"] is right_paid_as_wrong
    assert describe("W62")["bounds"] == {"alone": 0.6, "alone_steps": 3}
    assert describe("W63")["bounds"] == {"window": 10, "inverted": 0.05}
    assert describe("W62")["when"] == describe("W63")["when"] == "during the run and after it"


def test_healthy_shaped_runs_are_silent() -> None:
    for seed in range(10):
        history = shaped_run(seed, 40)
        assert [f for f in over_run(history) if f.code in ("W62", "W63")] == []
        assert {m["shape/alone"] for m in history if "shape/alone" in m} == {0.0}
        assert {m["group/inverted"] for m in history if "group/inverted" in m} == {0.0}
