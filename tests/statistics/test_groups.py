"""Groups as counts: failed verifiers are no wrong answers, and signal is what the method says it is."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import pytest

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.dead_groups import expected_dead, forecast
from grpo_cli.statistics.estimate import pass_at_k
from grpo_cli.statistics.step import GroupCounts, count_kinds, has_signal, kind_of, mean_pass_at_k, step_stats
from grpo_verifiers.verdict import Outcome

R, W, E = Outcome.RIGHT, Outcome.WRONG, Outcome.ERROR


def sample(reward: float | None, advantage: float | None, outcome: Outcome | None = W) -> SampleRecord:
    return SampleRecord(1, "row", 0, "", "", reward=reward, advantage=advantage, outcome=outcome)


@pytest.mark.parametrize(
    ("outcomes", "counts", "kind"),
    [
        ([R, R], (2, 2, 2), "all_right"),
        ([W, Outcome.NO_ANSWER, Outcome.OVER_LIMIT], (3, 3, 0), "all_wrong"),
        ([R, E, W, None], (4, 2, 1), "mixed"),
        ([R, E], (2, 1, 1), "all_right"),
        ([E, None], (2, 0, 0), "no_verdict"),
        ([], (0, 0, 0), "no_verdict"),
    ],
)
def test_a_failed_verifier_counts_on_no_side(
    outcomes: list[Outcome | None], counts: tuple[int, int, int], kind: str
) -> None:
    found = GroupCounts.of(outcomes)
    assert (found.size, found.judged, found.right) == counts
    assert found.kind == kind


def test_kinds_are_counted_as_often_as_groups_occur() -> None:
    kinds = count_kinds({(4, 0): 3, (4, 1): 2, (3, 3): 5, (0, 0): 1})
    assert kinds == {"all_wrong": 3, "mixed": 2, "all_right": 5, "no_verdict": 1}
    assert sum(kinds.values()) == 11


def test_signal_is_some_advantage_where_a_step_gave_them() -> None:
    # a floor under the deviation, or parts that cancel: the rewards alone would say the opposite
    assert not has_signal([sample(0.0, 0.0), sample(0.12, 0.0)])
    assert has_signal([sample(0.5, 1.3), sample(0.5, -1.3)])


def test_signal_is_forecast_where_only_rewards_are_known() -> None:
    assert has_signal([sample(0.0, None), sample(1.0, None)])
    for unit in (1.0, 1e10 / 7):
        assert not has_signal([sample(unit * 0.3, None), sample(unit * (0.1 + 0.2), None)])
    assert has_signal([sample(2e7, None), sample(2e7 + 1, None)])
    assert not has_signal([sample(1.0, None), sample(None, None, E)])
    assert not has_signal([])


def test_the_statistics_of_a_step_count_the_signal_of_its_method() -> None:
    floored = step_stats([sample(0.0, 0.0), sample(0.12, 0.0)], 2)
    assert (floored["group/with_signal"], floored["group/signal"]) == (0, 0.0)
    summed = step_stats([sample(0.5, 1.3), sample(0.5, -1.3)], 2)
    assert (summed["group/with_signal"], summed["group/signal"]) == (1, 1.0)


def test_pass_at_k_over_groups_is_the_exact_mean_however_they_are_counted() -> None:
    groups = [(7, 3)] * 13 + [(5, 1)] * 9 + [(2, 2)]
    for k in (1, 2, 3, 5):
        values = [pass_at_k(n, c, k) for n, c in groups if n >= k]
        assert mean_pass_at_k(Counter(groups), k) == math.fsum(values) / len(values)
    assert mean_pass_at_k(Counter(groups), 8) is None


def test_both_dead_group_forecasts_agree_where_groups_are_of_one_size() -> None:
    counts = [(4, right) for right in (0, 0, 1, 2, 4)]
    for size, found in zip((2, 4, 8), forecast(counts, (2, 4)), strict=False):
        assert expected_dead(Counter(counts), size) == pytest.approx(found.dead.mean)
    assert expected_dead({(1, 1): 4}, 8) is None
    assert expected_dead({(2, 0): 3, (2, 2): 1}, 8) == pytest.approx(1.0)


def test_every_group_is_of_one_kind() -> None:
    for judged, right in product(range(5), range(5)):
        if right <= judged:
            assert kind_of(judged, right) in count_kinds({})
