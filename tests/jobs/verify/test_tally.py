"""Group counts of a single pass: the same whatever the order, in memory that does not grow with contiguous groups."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.jobs.verify.tally import GroupTotals, Tally

Sample = tuple[int, str, float | None]


def tally(samples: list[Sample], **options: object) -> GroupTotals:
    counted = Tally(**options)  # type: ignore[arg-type]
    for sample in samples:
        counted.add(*sample)
    return counted.finish()


def groups(count: int, size: int = 4, seed: int = 0) -> list[Sample]:
    rng = random.Random(seed)
    out: list[Sample] = []
    for group in range(count):
        for _ in range(size):
            outcome = rng.choice(["right", "wrong", "no_answer", "error"])
            out.append((group * 7919, outcome, None if outcome == "error" else float(outcome == "right")))
    return out


def seen(totals: GroupTotals) -> tuple[object, ...]:
    return totals.pairs, totals.sizes, totals.with_signal, totals.outcomes, totals.reward_n


@given(st.permutations(groups(6)))
def test_the_order_of_samples_does_not_matter(samples: list[Sample]) -> None:
    assert seen(tally(samples)) == seen(tally(groups(6)))


def test_folding_contiguous_groups_changes_nothing() -> None:
    assert seen(tally(groups(500), kept=50)) == seen(tally(groups(500)))


def test_counters_do_not_grow_with_contiguous_groups() -> None:
    counted = Tally(kept=50)
    for sample in groups(500):
        counted.add(*sample)
    assert len(counted._index) < 50 and not counted.is_scattered


def test_scattered_groups_are_counted_exactly() -> None:
    samples = groups(500)
    random.Random(1).shuffle(samples)
    counted = Tally(kept=50)
    for sample in samples:
        counted.add(*sample)
    assert counted.is_scattered and seen(counted.finish()) == seen(tally(groups(500)))


def test_groups_that_come_back_after_folding_are_noticed() -> None:
    counted = Tally(kept=50)
    for sample in groups(100) * 2:
        counted.add(*sample)
    counted.finish()
    assert counted.is_inexact


def test_a_file_that_goes_through_the_prompts_again_and_again_is_exact() -> None:
    samples = [sample for i in range(4) for sample in groups(500)[i::4]]
    counted = Tally(kept=50)
    for sample in samples:
        counted.add(*sample)
    assert seen(counted.finish()) == seen(tally(groups(500))) and not counted.is_inexact


def test_scattered_order_asked_for_is_exact_even_then() -> None:
    counted = Tally("scattered", kept=50)
    for sample in groups(100) * 2:
        counted.add(*sample)
    assert counted.finish().groups == 100 and not counted.is_inexact


def test_errors_are_in_no_group_verdict() -> None:
    found = tally([(1, "error", None), (1, "right", 1.0), (2, "error", None)])
    assert found.kinds() == {"all_wrong": 0, "mixed": 0, "all_right": 1, "no_verdict": 1}


def test_signal_is_about_rewards_not_outcomes() -> None:
    assert tally([(1, "wrong", 0.0), (1, "wrong", 0.1)]).with_signal == 1
    assert tally([(1, "wrong", 0.1), (1, "wrong", 0.1)]).with_signal == 0


def test_dead_groups_are_predicted_without_bias_from_larger_groups() -> None:
    found = tally([(1, "right", 1.0)] * 2 + [(1, "wrong", 0.0)] * 2)
    assert found.predicted_dead(2) == pytest.approx(2 / 6)
    assert found.predicted_dead(4) == 0.0


def test_dead_groups_of_larger_groups_come_from_a_fitted_beta() -> None:
    rng = random.Random(0)
    samples: list[Sample] = []
    for group in range(4000):
        p = rng.betavariate(2, 3)
        for _ in range(4):
            is_right = rng.random() < p
            samples.append((group, "right" if is_right else "wrong", float(is_right)))
    exact = 1.0
    for i in range(8):
        exact *= (3 + i) / (5 + i)
    other = 1.0
    for i in range(8):
        other *= (2 + i) / (5 + i)
    assert tally(samples).predicted_dead(8) == pytest.approx(exact + other, abs=0.02)


def test_single_samples_predict_nothing() -> None:
    assert tally([(1, "right", 1.0), (2, "wrong", 0.0)]).predicted_dead(8) is None
