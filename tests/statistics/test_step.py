"""Group and step statistics, on batches small enough to count by hand."""

from __future__ import annotations

import math
import random

import pytest

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import percentile, repetition, step_stats, timing_stats
from grpo_verifiers.thinking import has_thought
from grpo_verifiers.verdict import Outcome, Verdict, error, no_answer, over_limit, right, wrong

MARKS = {"r": right("4"), "w": wrong("5"), "n": no_answer("no_box"), "o": over_limit("too_long"), "e": error("crashed")}


def batch(*groups: str, reward: float | None = None, tokens: int = 10) -> list[SampleRecord]:
    """One sample a letter: r, w, n, o or e."""
    return [
        sample(MARKS[mark], group=i, tokens=tokens, reward=reward) for i, marks in enumerate(groups) for mark in marks
    ]


def sample(
    verdict: Verdict,
    *,
    group: int = 0,
    reward: float | None = None,
    tokens: int = 10,
    truncated: bool = False,
    completion: str = "x",
) -> SampleRecord:
    own = verdict.score if reward is None else reward
    return SampleRecord(
        step=1, row=f"row{group}", group=group, prompt="p", completion=completion, verdicts={"math": verdict},
        outcome=verdict.outcome, reward=own, tokens=tokens, truncated=truncated,
    )  # fmt: skip


def test_groups_are_wrong_mixed_or_right_by_the_primary_verifier() -> None:
    stats = step_stats(batch("wwww", "rwnw", "rrrr", "ononon"), 4)
    assert [stats[f"group/{kind}"] for kind in ("all_wrong", "mixed", "all_right", "count")] == [2, 1, 1, 4]


def test_an_error_takes_the_sample_out_of_rewards_and_groups() -> None:
    stats = step_stats(batch("reee", "eeee", "rw"), 4, ks=(1, 2))
    assert stats["reward/total/mean"] == pytest.approx(2 / 3)
    assert stats["group/all_right"] == 1
    assert stats["group/no_verdict"] == 1
    assert stats["group/partial"] == 1
    assert stats["error"] == pytest.approx(7 / 10)
    assert stats["no_reward"] == 7
    assert stats["pass@1"] == pytest.approx(0.75)
    assert stats["pass@2"] == pytest.approx(1.0)


def test_over_limit_scores_zero_and_counts_as_wrong() -> None:
    stats = step_stats(batch("ro"), 2)
    assert stats["reward/total/mean"] == 0.5
    assert stats["group/mixed"] == 1
    assert stats["over_limit"] == 0.5


def test_signal_is_reward_spread_and_not_the_primary_verdict() -> None:
    flat_but_mixed = [sample(right(), reward=0.5), sample(wrong(), reward=0.5)]
    spread_but_all_wrong = [sample(wrong(), group=1, reward=0.1), sample(wrong(), group=1, reward=0.0)]
    stats = step_stats(flat_but_mixed + spread_but_all_wrong, 2)
    assert stats["group/mixed"] == 1
    assert stats["group/all_wrong"] == 1
    assert stats["group/with_signal"] == 1
    assert stats["group/signal"] == 0.5


def test_rewards_that_differ_in_the_last_bit_carry_no_signal() -> None:
    assert step_stats([sample(right(), reward=0.1 + 0.2), sample(right(), reward=0.3)], 2)["group/signal"] == 0


def test_the_histogram_counts_groups_by_right_samples() -> None:
    stats = step_stats(batch("wwww", "rwww", "rrrr", "rrrr"), 4)
    assert [stats[f"group/hist/{k}"] for k in range(5)] == [1, 1, 0, 0, 2]


def test_pass_at_k_is_unbiased_in_the_group() -> None:
    stats = step_stats(batch("rwww", "wwww"), 4, ks=(1, 2, 4))
    assert stats["pass@1"] == pytest.approx(0.125)
    assert stats["pass@2"] == pytest.approx(0.25)
    assert stats["pass@4"] == pytest.approx(0.5)


def test_pass_at_k_is_not_measured_where_no_group_is_large_enough() -> None:
    assert step_stats(batch("rw"), 2, ks=(4,))["pass@4"] is None


def test_statistics_do_not_depend_on_the_order_of_the_samples() -> None:
    samples = [
        sample(MARKS[mark], group=i % 5, reward=None if mark == "e" else 0.1 * i, tokens=i, truncated=i % 3 == 0)
        for i, mark in enumerate("rwnoe" * 8)
    ]
    expected = step_stats(samples, 8, ks=(1, 2, 4))
    shuffled = random.Random(1)
    for _ in range(20):
        shuffled.shuffle(samples)
        assert step_stats(samples, 8, ks=(1, 2, 4)) == expected


def test_the_same_row_drawn_twice_in_a_step_makes_two_groups() -> None:
    twice = [
        SampleRecord(1, "row", g, "p", "c", verdicts={}, outcome=o) for g, o in ((0, Outcome.RIGHT), (1, Outcome.WRONG))
    ]
    stats = step_stats(twice, 1)
    assert (stats["group/all_right"], stats["group/all_wrong"]) == (1, 1)


def test_each_verifier_has_its_own_outcomes_reasons_and_latency() -> None:
    verdicts = [
        right("1", "equal", seconds=0.1),
        wrong("2", "differs", seconds=0.3),
        no_answer("no_box"),
        error("crashed"),
    ]
    stats = step_stats([sample(v) for v in verdicts], 4)
    assert [stats[f"verify/math/{o}"] for o in ("calls", "right", "wrong", "no_answer", "over_limit", "error")] == [
        4,
        1,
        1,
        1,
        0,
        1,
    ]
    assert stats["verify/math/reason/no_box"] == 0.25
    assert stats["verify/math/p95_s"] == pytest.approx(0.27)
    assert stats["reward/math/mean"] == pytest.approx(1 / 3)
    assert stats["reward/math/std"] == pytest.approx(math.sqrt(1 / 3))


def test_rare_reasons_are_summed() -> None:
    stats = step_stats([sample(wrong("1", f"reason{i:02d}")) for i in range(12)], 12)
    reasons = {key: value for key, value in stats.items() if key.startswith("verify/math/reason/")}
    assert len(reasons) == 9
    assert reasons["verify/math/reason/other"] == pytest.approx(4 / 12)


def test_lengths_of_right_and_wrong_are_apart_and_errors_are_in_neither() -> None:
    samples = [
        sample(right(), tokens=10),
        sample(wrong(), tokens=20),
        sample(over_limit("t"), tokens=40, truncated=True),
        sample(error("x"), tokens=90),
    ]
    stats = step_stats(samples, 4)
    assert (stats["length/right"], stats["length/wrong"], stats["length/mean"]) == (10, 30, 40)
    assert stats["truncated"] == 0.25
    assert stats["length/terminated"] == 40


def test_an_empty_batch_measures_nothing() -> None:
    stats = step_stats([], 4, ks=(1, 4))
    assert stats["samples"] == 0
    assert stats["group/signal"] is None
    assert stats["reward/total/mean"] is None
    assert stats["pass@4"] is None


def test_standard_deviation_inside_the_group_differs_from_that_of_the_batch() -> None:
    flat = [sample(right(), group=0), sample(right(), group=0), sample(wrong(), group=1), sample(wrong(), group=1)]
    stats = step_stats(flat, 2)
    assert stats["reward/std_in_group"] == 0
    assert stats["reward/std"] == pytest.approx(0.57735, abs=1e-5)


def test_unique_answers_are_a_share_inside_the_group() -> None:
    stats = step_stats([sample(wrong("1")), sample(wrong("1")), sample(wrong("2")), sample(no_answer("x"))], 4)
    assert stats["unique_answers"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>1+1=2</think>2", True),
        ("so 1+1=2</think>2", True),
        ("<think></think>2", False),
        ("<think>\n</think>2", False),
        ("<think>never ends", False),
        ("2", False),
        ("</think>2", False),
        ("text <think>a</think>", True),
    ],
)
def test_a_thinking_block_is_closed_and_not_empty(completion: str, expected: bool) -> None:
    assert has_thought(completion) is expected


def test_percentile_interpolates_between_ranks() -> None:
    assert percentile([4, 1, 3, 2], 0.5) == 2.5
    assert percentile([7], 0.95) == 7
    assert percentile([], 0.95) is None


def test_eta_takes_the_median_step_so_that_one_slow_step_does_not_move_it() -> None:
    stats = timing_stats({"generate": 2.0, "update": 1.0}, 1000, step_s=100.0, recent_s=[4.0, 4.0, 4.0], steps_left=10)
    assert stats["eta_s"] == 40
    assert stats["tokens_per_s"] == 500
    assert stats["time/other"] == 97


def test_repetition_is_the_share_of_four_word_runs_that_are_there_already() -> None:
    assert repetition("a b c d e f g") == 0
    assert repetition("too short") == 0
    assert repetition("a b c d a b c d") == pytest.approx(1 / 5)
    assert repetition("yes " * 103) == pytest.approx(99 / 100)
