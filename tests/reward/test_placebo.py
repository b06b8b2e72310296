import math

import pytest

from grpo_cli.reward.judge import Judgement
from grpo_cli.reward.pay import placebo
from grpo_verifiers.verdict import Outcome

NAN = math.nan
REWARDS = [1.0, 0.0, 0.5, NAN, 1.0, 0.0]
OUTCOMES = [Outcome.RIGHT, Outcome.WRONG, Outcome.NO_ANSWER, Outcome.ERROR, Outcome.RIGHT, Outcome.OVER_LIMIT]
JUDGED = [
    Judgement({}, outcome, None if outcome is Outcome.ERROR else r)
    for outcome, r in zip(OUTCOMES, REWARDS, strict=True)
]


def arm(control: str, key: str = "0/1/1/7") -> list[float]:
    return placebo(control, REWARDS, JUDGED, key)  # type: ignore[arg-type]


@pytest.mark.parametrize("control", ["random", "shuffled", "format_only"])
def test_no_verdict_stays_no_verdict(control: str) -> None:
    assert [math.isnan(r) for r in arm(control)] == [False, False, False, True, False, False]


def test_shuffled_keeps_the_rewards_and_breaks_the_link() -> None:
    assert sorted(r for r in arm("shuffled") if not math.isnan(r)) == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert len({str(arm("shuffled", f"key {i}")) for i in range(20)}) > 5


def test_random_is_a_fair_coin_that_does_not_look() -> None:
    flips = [r for i in range(400) for r in arm("random", f"key {i}") if not math.isnan(r)]
    assert sum(flips) / len(flips) == pytest.approx(0.5, abs=0.04)


def test_format_only_rewards_any_answer_that_was_read() -> None:
    assert [r for r in arm("format_only") if not math.isnan(r)] == [1.0, 1.0, 0.0, 1.0, 0.0]


def test_a_resumed_run_draws_the_same_placebo() -> None:
    assert str(arm("random")) == str(arm("random"))
