"""W53: a run that makes held-out answers worse."""

from __future__ import annotations

import random

import pytest

from grpo_cli.findings.alarms import alarms_over_run
from grpo_cli.findings.held_out import HeldOutScores, held_out_fell
from grpo_cli.jobs.explain.subjects import rules
from grpo_cli.run.info import BETWEEN


def line(step: int, score: float, half: float = 0.05, key: str = "eval/pass@1", **more: float) -> dict[str, float]:
    return {"step": step, key: score, f"{key}/half": half, **more}


@pytest.mark.parametrize("key", ["eval/pass@1", "eval/greedy"])
def test_a_fall_beyond_chance_is_said_once(key: str) -> None:
    fall = HeldOutScores()
    assert fall.evaluated(line(0, 0.35, key=key)) == []
    assert fall.evaluated(line(10, 0.31, key=key)) == []
    (found,) = fall.evaluated(line(20, 0.07, 0.03, key=key))
    assert (found.code, found.step) == ("W53", 20)
    assert "0.070, 0.350 at step 0" in found.text
    assert fall.evaluated(line(30, 0.05, 0.03, key=key)) == []


@pytest.mark.parametrize(
    "after",
    [
        line(10, 0.35),
        line(10, 0.60),
        line(10, 0.31),
        line(10, 0.07, **{BETWEEN: 1}),
        {"step": 10, "eval/pass@1": 0.07},
        {"step": 10, "eval/pass@1": None, "eval/pass@1/half": None},
    ],
)
def test_what_is_no_fall_is_not_said(after: dict[str, float]) -> None:
    assert held_out_fell([line(0, 0.35), after]) is None


def test_a_run_that_stays_as_it_was_is_hardly_ever_told_of_a_fall() -> None:
    draw, said = random.Random(0), 0
    for _ in range(200):
        fall = HeldOutScores()
        lines = [line(step, draw.gauss(0.5, 0.025)) for step in range(0, 200, 10)]  # the half-width of .049
        said += any(fall.evaluated(line) for line in lines)
    assert said <= 10


def test_it_is_found_again_in_the_lines_of_a_run() -> None:
    lines = [line(0, 0.77), line(10, 0.76), line(20, 0.4)]
    assert [(f.code, f.step) for f in alarms_over_run([], lines, {})] == [("W53", 20)]
    assert rules()["W53"] is held_out_fell


def test_verifiers_that_fail_on_held_out_samples_are_found_once() -> None:
    """W40: the scores beside it may look as if nothing was."""
    fall = HeldOutScores()
    lines = [
        line(step, 0.5, **{"eval/samples": 200, "eval/without_verdict": failed})
        for step, failed in ((0, 0), (10, 2), (20, 50), (30, 50))
    ]
    assert [[(f.code, f.step) for f in fall.evaluated(one)] for one in lines] == [[], [], [("W40", 20)], []]
    assert [(f.code, f.step) for f in alarms_over_run([], lines, {})] == [("W40", 20)]
    assert alarms_over_run([], [line(0, 0.5)], {}) == [], "a run of an earlier version did not count them"


@pytest.mark.parametrize(
    ("score", "half", "is_found"),
    [
        (0.95, 0.02, False),
        (0.89, 0.02, False),
        (0.87, 0.02, True),
        (0.3, 0.05, True),
        (1.0, 0.0, True),
        (0.985, 0.01, False),
    ],
)
def test_a_score_outside_the_band_of_the_recipe_is_said_at_its_step(score: float, half: float, is_found: bool) -> None:
    lines = [line(0, 0.2), line(20, 0.5), line(40, score, half)]
    recipe = {"eval.expect.step": 40, "eval.expect.pass@1": [0.9, 0.98]}
    assert [(f.code, f.step) for f in alarms_over_run([], lines, recipe)] == ([("W54", 40)] if is_found else [])
    assert alarms_over_run([], lines[:2], recipe) == [], "a run that was made shorter is not compared"
    assert alarms_over_run([], lines, {}) == []


def test_above_the_band_the_hint_is_about_the_verifier() -> None:
    low, high = (HeldOutScores(40, [0.2, 0.3]).evaluated(line(40, score, 0.01))[0] for score in (0.1, 0.6))
    assert "0.600 ±0.010 after 40 steps, where the recipe expects 0.2 to 0.3" in high.text
    assert "verifier" in high.hint and "settings" in low.hint
