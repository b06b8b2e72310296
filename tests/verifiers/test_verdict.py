import pytest

from grpo_verifiers.verdict import Outcome, Verdict, error, over_limit, right


def test_error_carries_no_score() -> None:
    assert error("sandbox").score is None
    with pytest.raises(ValueError, match="no score"):
        Verdict(Outcome.ERROR, 0.0)


@pytest.mark.parametrize("score", [None, -0.1, 1.1, float("nan"), float("inf")])
def test_a_score_is_finite_and_between_0_and_1(score: float | None) -> None:
    with pytest.raises(ValueError, match="not in"):
        Verdict(Outcome.WRONG, score)


def test_over_limit_scores_zero() -> None:
    assert over_limit("timeout").score == 0.0
    with pytest.raises(ValueError, match="hide"):
        Verdict(Outcome.OVER_LIMIT, 0.5)


def test_json_names_the_answer_extracted() -> None:
    assert right("4", "equal:string").as_json()["extracted"] == "4"
