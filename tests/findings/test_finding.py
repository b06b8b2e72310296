"""Windows of a run's history: what was not measured is neither zero nor a reason to fail."""

from __future__ import annotations

import dataclasses
import math

import pytest

from grpo_cli.findings.finding import (
    Limits,
    all_of_last,
    finite,
    mean_over,
    median_of_last,
    smooth,
    two_ends,
    two_medians,
)
from grpo_cli.findings.health import findings

STEPS = [{"step": i, "kl": float(i)} for i in range(1, 9)]
GAPS = [{"step": 1, "kl": 1.0}, {"step": 2}, {"step": 3, "kl": math.nan}, {"step": 4, "kl": 4.0}]


def test_a_window_is_whole_or_none() -> None:
    assert all_of_last(STEPS, "kl", 3) == [6.0, 7.0, 8.0]
    assert all_of_last(STEPS, "kl", 9) is None
    assert all_of_last(GAPS, "kl", 2) is None
    assert all_of_last(STEPS, "loss", 1) is None


def test_two_windows_are_both_there_or_neither() -> None:
    assert two_medians(STEPS, "kl", 3, 3) == (7.0, 4.0)
    assert two_medians(STEPS, "kl", 6, 3) == (None, None)
    assert two_medians(STEPS, "kl", 8, 3) == (None, None)


def test_a_median_takes_what_was_measured_and_a_mean_asks_for_enough() -> None:
    assert median_of_last(GAPS, "kl", 4) == 2.5
    assert median_of_last(GAPS, "kl", 5) is None
    assert mean_over(GAPS, "kl", 2) == 2.5
    assert mean_over(GAPS, "kl", 3) is None
    assert mean_over(STEPS, lambda m: m["kl"] * 2, 1) == 9.0


def test_smoothing_and_ends_leave_out_what_is_no_number() -> None:
    assert smooth(GAPS, "kl", 1) == [1.0, None, None, 4.0]
    assert smooth(STEPS, "kl", 2)[:3] == [None, 1.5, 2.5]
    assert two_ends(GAPS, "kl", 2) == (1.0, 4.0)
    assert two_ends(GAPS[1:3], "kl", 1) is None


@pytest.mark.parametrize("value", [None, math.inf, math.nan, "0.5"])
def test_only_finite_numbers_are_numbers(value: object) -> None:
    assert finite(value) is None


def test_limits_are_one_record_and_move_the_rules() -> None:
    history = [{"step": i, "truncated": 0.2} for i in range(1, 11)]
    assert [f.code for f in findings(history)] == ["W20"]
    assert findings(history, dataclasses.replace(Limits(), truncated=0.3)) == []
