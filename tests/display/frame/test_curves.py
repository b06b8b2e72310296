"""Curves of a whole run: exact means in bins, rates on 0 to 1, and what a column stands for."""

from __future__ import annotations

import random

import pytest

from grpo_cli.display.frame.curves import Curves, area, bounds, columns_of, points_of, spark_of
from grpo_cli.display.frame.kinds import shares


@pytest.mark.parametrize("steps", [1, 7, 8, 9, 16, 17, 100, 1000])
def test_bins_are_means_of_equally_many_steps_and_bounded(steps: int) -> None:
    rng, curves = random.Random(1), Curves(8)
    values = [rng.random() for _ in range(steps)]
    for value in values:
        curves.add({"x": value})
    size = 1
    while -(-steps // size) > 8:
        size *= 2
    expected = [values[i : i + size] for i in range(0, steps, size)]
    assert curves.of("x") == pytest.approx([sum(part) / len(part) for part in expected])


def test_what_a_step_did_not_measure_is_a_gap_and_no_zero() -> None:
    curves = Curves(4)
    for step in range(4):
        curves.add({"x": 1.0} if step == 1 else {"y": 2.0})
    assert curves.of("x") == [None, 1.0, None, None]
    assert curves.of("y") == [2.0, None, 2.0, 2.0]
    curves.add({})
    assert curves.of("x") == [1.0, None, None]
    assert curves.of("never") == [None] * 3


def test_odd_values_are_no_part_of_a_curve() -> None:
    curves = Curves()
    curves.add({"x": float("nan"), "y": float("inf"), "z": None, "s": "text"})
    assert [curves.of(key) for key in "xyzs"] == [[None]] * 4


def test_a_copy_is_left_as_it_is() -> None:
    curves = Curves(4)
    curves.add({"x": 1.0})
    before = curves.copy()
    for _ in range(9):
        curves.add({"x": 2.0})
    assert before.of("x") == [1.0]


def test_a_run_longer_than_the_screen_is_binned_and_a_short_one_is_stretched() -> None:
    assert columns_of([0, 1, 2, 3, 4, 5], 3) == [0.5, 2.5, 4.5]
    assert columns_of([1, 2], 8, steps=4) == [1, 1, 2, 2]
    assert columns_of([1, 2], 8, steps=100) == [1, 2]
    assert columns_of([], 8) == columns_of([1], 0) == []


def test_a_rate_is_drawn_on_nought_to_one() -> None:
    assert spark_of("reward/total/mean", [1.0] * 4, 4) == "████"
    assert spark_of("think", [0.0, 0.5, 1.0], 3) == "▁▄█"
    assert bounds("reward/total/mean", [0.1, 0.2]) == (0.0, 1.0)
    assert bounds("reward/total/mean", [-1.0, 2.0]) == (-1.0, 2.0)
    assert bounds("entropy", [0.2, 0.4]) == (0.0, 0.4)


def test_a_curve_that_rose_early_stays_high_later() -> None:
    rising = [0.1 + 0.85 * min(step / 100, 1) for step in range(1000)]
    assert spark_of("reward/total/mean", rising, 30).endswith("█" * 20)


def test_what_was_always_nought_or_never_measured_is_not_drawn() -> None:
    assert spark_of("clip/total", [0.0] * 5, 5) == ""
    assert spark_of("kl", [None] * 5, 5) == ""


def test_an_area_is_filled_from_the_foot() -> None:
    assert area([0.0, 0.5, 1.0, None], 2, 0.0, 1.0) == ["  █ ", "▁██ "]


def test_held_out_scores_stand_at_their_steps() -> None:
    scored = [{"step": step, "k": step / 100} for step in (0, 50, 100)]
    assert points_of(scored, "k", 1, 100, 11) == {0: 0.0, 5: 0.5, 10: 1.0}
    assert points_of(scored, "k", 1, 100, 0) == {}


def test_shares_fill_the_bar_and_show_what_there_is() -> None:
    rng = random.Random(3)
    for _ in range(300):
        counts = [rng.choice([0, 0, 1, 3, 50]) for _ in range(3)]
        width = rng.randint(3, 60)
        cells = shares(counts, width, least=1)
        assert sum(cells) == (width if sum(counts) else 0)
        assert all((count > 0) == (cell > 0) for count, cell in zip(counts, cells, strict=True))
    assert shares([1, 2, 1], 8) == [2, 4, 2]
    assert shares([1, 31, 0], 5) == [0, 5, 0]
