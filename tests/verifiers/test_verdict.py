import pytest

from grpo_verifiers.verdict import Outcome, Verdict, error, over_limit, right


def test_error_carries_no_score() -> None:
    assert error("sandbox").score is None
    with pytest.raises(ValueError, match="no score"):
        Verdict(Outcome.ERROR, 0.0)


@pytest.mark.parametrize("score", [None, float("nan"), float("inf")])
def test_a_score_is_finite(score: float | None) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        Verdict(Outcome.WRONG, score)


def test_over_limit_scores_zero() -> None:
    assert over_limit("timeout").score == 0.0


def test_json_names_the_answer_extracted() -> None:
    assert right("4", "equal:string").as_json()["extracted"] == "4"
