"""Estimates against values worked by hand or known from elsewhere; coverage is simulated in `bench/bench_coverage.py`."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from statistics import fmean

import numpy as np
import pytest

from grpo_cli.statistics.estimate import (
    Interval,
    across_seeds,
    clustered,
    detectable_exactly,
    maj_at_k,
    mcnemar_exact,
    min_detectable,
    paired_clustered,
    pass_at_k,
    pass_at_k_interval,
    wilson,
)


def test_pass_at_k_of_all_samples_is_whether_any_is_right() -> None:
    assert pass_at_k(4, 1, 4) == 1.0  # a library elsewhere says less here
    assert pass_at_k(4, 0, 4) == 0.0


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 2), (8, 3, 4), (6, 5, 3), (5, 5, 5)])
def test_pass_at_k_equals_the_mean_over_all_subsets(n: int, c: int, k: int) -> None:
    subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_grows_with_k() -> None:
    values = [pass_at_k(16, 3, k) for k in range(1, 17)]
    assert values == sorted(values)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0)])
def test_pass_at_k_refuses_what_cannot_be_estimated(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="cannot be estimated"):
        pass_at_k(n, c, k)


def brute_maj(answers: list[str | None], is_right: list[bool], k: int) -> float:
    total = 0.0
    subsets = list(itertools.combinations(range(len(answers)), k))
    for subset in subsets:
        votes: dict[object, int] = {}
        for i in subset:
            if is_right[i]:
                votes[True] = votes.get(True, 0) + 1
            elif answers[i] is not None:
                votes[answers[i]] = votes.get(answers[i], 0) + 1
        top = max(votes.values(), default=0)
        winners = [answer for answer, count in votes.items() if count == top]
        total += (True in winners) / len(winners) if winners else 0.0
    return total / len(subsets)


def test_maj_at_k_equals_the_mean_over_all_subsets() -> None:
    rng = random.Random(3)
    for _ in range(60):
        n = rng.randint(1, 8)
        answers = [rng.choice(["a", "b", "c", "d", None]) for _ in range(n)]
        is_right = [answer == "a" for answer in answers]
        for k in range(1, n + 1):
            assert maj_at_k(answers, is_right, k) == pytest.approx(brute_maj(answers, is_right, k))


def test_maj_at_k_counts_right_answers_as_one_however_spelled() -> None:
    assert maj_at_k(["1/2", "0.5", "3", "3"], [True, True, False, False], 4) == 0.5
    assert maj_at_k(["1/2", "0.5", "3"], [True, True, False], 3) == 1.0


def test_wilson_matches_a_published_value() -> None:
    found = wilson(15, 148)  # Newcombe 1998, table I
    assert (found.low, found.high) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20).low == 0.0
    assert wilson(20, 20).high == 1.0
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


def test_samples_of_one_prompt_do_not_make_an_interval_narrower() -> None:
    prompts = [[1.0], [0.0]] * 50
    repeated = [[value] * 16 for [value] in prompts]
    assert clustered(repeated).half_width == pytest.approx(clustered(prompts).half_width, rel=0.01)


def test_prompts_without_a_verdict_are_left_out() -> None:
    assert clustered([[1.0], [], [0.0]]).n == 2
    assert clustered([[1.0], [], [0.0]]).mean == 0.5
    assert math.isnan(clustered([]).mean)


def test_all_right_still_has_a_width() -> None:
    found = clustered([[1.0] * 4] * 30)
    assert found.high == 1.0
    assert 0.8 < found.low < 0.95


def test_values_that_are_no_shares_get_a_t_interval() -> None:
    found = clustered([[-1.0], [3.0]])
    assert found.mean == 1.0
    assert found.half_width == pytest.approx(12.706 * 2.0, rel=1e-3)


@pytest.mark.parametrize(("a", "b", "p"), [(0, 0, 1.0), (0, 5, 0.0625), (1, 9, 0.021484375), (5, 5, 1.0)])
def test_mcnemar_is_the_exact_binomial_test(a: int, b: int, p: float) -> None:
    assert mcnemar_exact(a, b) == pytest.approx(p)
    assert mcnemar_exact(b, a) == pytest.approx(p)


def test_mcnemar_takes_large_counts() -> None:
    assert 0 < mcnemar_exact(4800, 5200) < 1e-3


def test_a_paired_comparison_sees_what_two_intervals_would_not() -> None:
    rng = random.Random(0)
    hard = [rng.random() for _ in range(200)]
    a = [[h] for h in hard]
    b = [[h + 0.02] for h in hard]
    found = paired_clustered(a, b)
    assert found.p_value < 1e-6
    assert found.difference.mean == pytest.approx(0.02)


def test_equal_models_differ_by_nothing() -> None:
    same = [[1.0, 0.0], [1.0, 1.0]]
    found = paired_clustered(same, same)
    assert (found.p_value, found.difference.mean) == (1.0, 0.0)
    assert found.difference.half_width > 0.5  # two prompts say nearly nothing


@pytest.mark.parametrize("n", [2, 3, 30, 128, 1000])
@pytest.mark.parametrize("same", [0.0, 0.5, 1.0, 0.1 + 0.2])
def test_equal_models_are_no_closer_than_the_rule_of_three(n: int, same: float) -> None:
    found = paired_clustered([[same]] * n, [[same]] * n)
    assert found.difference.high == -found.difference.low == pytest.approx(1 - 0.05 ** (1 / n))
    assert found.p_value == 1.0
    if n == 128:
        assert found.difference.high == pytest.approx(0.023, abs=5e-4)


@pytest.mark.parametrize("n", range(2, 12))
@pytest.mark.parametrize("sign", [1, -1])
def test_one_difference_on_all_prompts_is_sure_only_where_the_sign_test_is(n: int, sign: int) -> None:
    a, b = [[0.0]] * n, [[1.0]] * n
    found = paired_clustered(a, b) if sign > 0 else paired_clustered(b, a)
    assert found.p_value == pytest.approx(2.0 ** (1 - n)) == pytest.approx(mcnemar_exact(n, 0))
    low, high = sorted((sign * found.difference.low, sign * found.difference.high))
    assert high == 1.0 and (low > 0) == (found.p_value < 0.05)


def test_a_spread_of_rounding_errors_is_no_spread() -> None:
    a = [[0.3], [0.1 + 0.2], [0.3], [0.3], [0.3], [0.3], [0.3], [0.3]]
    b = [[0.4]] * 8
    found = paired_clustered(a, b)
    assert found.difference.half_width > 0.2 and found.p_value == pytest.approx(2**-7)
    alike = clustered([*a, *a])
    assert alike.half_width > 0.15
    assert math.isnan(across_seeds([0.3, 0.1 + 0.2, 0.3]).half_width)


def test_values_of_unknown_range_that_are_all_alike_have_no_interval() -> None:
    assert clustered([[2.0]] * 5).half_width == math.inf
    found = paired_clustered([[2.0]] * 5, [[3.0]] * 5)
    assert found.difference.half_width == math.inf and found.detectable == math.inf
    assert found.p_value == pytest.approx(2**-4)


@pytest.mark.parametrize(("n", "share"), [(6, 0.03), (30, 0.02), (128, 0.01)])
def test_intervals_without_spread_cover(n: int, share: float) -> None:
    rng, held, tried = random.Random(n), 0, 4000
    for _ in range(tried):
        gaps = [float(rng.random() < share) for _ in range(n)]
        found = paired_clustered([[0.0]] * n, [[gap] for gap in gaps]).difference
        held += found.low <= share <= found.high
    assert held / tried > 0.94


@pytest.mark.parametrize("n", [6, 30, 128])
def test_what_is_detectable_without_spread_is_found_with_the_power_it_says(n: int) -> None:
    share = detectable_exactly(n)
    power = sum(
        math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1) if mcnemar_exact(0, k) <= 0.05
    )
    assert power == pytest.approx(0.8)
    assert detectable_exactly(5) == math.inf


def test_a_comparison_needs_the_same_prompts() -> None:
    with pytest.raises(ValueError, match="same prompts"):
        paired_clustered([[1.0]], [[1.0], [0.0]])


def test_the_detectable_difference_of_the_readme_sentence() -> None:
    assert min_detectable(256, 0.2) == pytest.approx(0.078, abs=5e-4)
    assert min_detectable(5, 0.05) == math.inf


def test_seed_spread_of_one_run_is_not_measured() -> None:
    assert math.isnan(across_seeds([0.5]).low)
    assert across_seeds([0.5, 0.7]).mean == pytest.approx(0.6)


def test_a_pass_at_k_near_one_is_not_surer_than_its_trials() -> None:
    nearly_all = [(8, 8)] * 60 + [(8, 4)] * 4
    found = pass_at_k_interval([*nearly_all, (2, 2)], 4)
    assert found.n == 64
    assert found.mean == pytest.approx((60 + 4 * (1 - 1 / 70)) / 64)
    assert found.low < 0.98


def drawn_counts(prompts: int, a: float, b: float, times: int) -> Iterator[list[tuple[int, int]]]:
    """(judged, right) of 16 samples of each prompt, whose chance is Beta(a, b) distributed, so many evaluations."""
    chance = np.random.default_rng(3)
    for row in chance.binomial(16, chance.beta(a, b, (times, prompts))).tolist():
        yield [(16, c) for c in row]


def by_trials(counts: list[tuple[int, int]]) -> Interval:
    """pass@4's interval where each prompt is worth n/k trials, whatever its samples show."""
    return clustered([[pass_at_k(n, c, 4)] for n, c in counts], most_trials=sum(n for n, _ in counts) / 4)


@pytest.mark.parametrize(("prompts", "less", "covered"), [(64, 0.891, 0.968), (128, 0.917, 0.951), (256, 0.932, 0.955)])
def test_the_interval_of_a_pass_at_k_near_one_covers_what_it_promises(
    prompts: int, less: float, covered: float
) -> None:
    # E[(1 - p)^4] of Beta(.9, .1)
    truth = 1 - math.prod((0.1 + i) / (1 + i) for i in range(4))
    evaluations = list(drawn_counts(prompts, 0.9, 0.1, 1500))

    def share(of: Callable[[list[tuple[int, int]]], Interval]) -> float:
        return fmean(found.low <= truth <= found.high for found in map(of, evaluations))

    # at 1,500 evaluations the standard error is .006
    assert share(lambda counts: pass_at_k_interval(counts, 4)) == pytest.approx(covered, abs=2e-3)
    assert share(by_trials) == pytest.approx(less, abs=2e-3)


def test_the_interval_of_a_pass_at_k_away_from_one_stays() -> None:
    for counts in drawn_counts(64, 1.0, 1.0, 200):
        found, before = pass_at_k_interval(counts, 4), by_trials(counts)
        assert (found.low, found.high) == pytest.approx((before.low, before.high), abs=1e-5)
        uneven = [(n - at % 12, min(c, n - at % 12)) for at, (n, c) in enumerate(counts)]
        assert pass_at_k_interval(uneven, 4).half_width >= by_trials(uneven).half_width - 1e-12
