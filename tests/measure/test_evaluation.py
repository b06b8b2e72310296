"""pass@1 is a mean over prompts, pass@k needs k verdicts, and what got none counts neither way."""

from __future__ import annotations

import pytest

from grpo_cli.errors import DataError
from grpo_cli.jobs.evaluate import compare
from grpo_cli.measure.evaluation import Evaluation, measure
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import step_stats
from grpo_verifiers.verdict import Outcome, Verdict

OUTCOMES = {"+": Outcome.RIGHT, "-": Outcome.WRONG, "?": Outcome.ERROR}


def records(**prompts: str) -> list[SampleRecord]:
    """One record a sign: `+` right, `-` wrong, `?` without a verdict."""
    found = []
    for row, signs in prompts.items():
        for sign in signs:
            outcome = OUTCOMES[sign]
            score = None if sign == "?" else float(sign == "+")
            verdict = Verdict(outcome, score, answer=sign)
            found.append(
                SampleRecord(0, row, row, "Q", "7", {}, {"math": verdict}, outcome, score, None, 20, sign == "-")
            )
    return found


def test_pass_at_1_is_the_mean_of_the_prompts_shares() -> None:
    found = measure(records(a="++", b="--", c="+-"), 2, [1, 2], 3.0)
    assert found.pass_1.mean == pytest.approx(0.5) and found.pass_1.n == 3
    assert found.pass_k[2].mean == pytest.approx(2 / 3)
    assert (found.mean_tokens, found.truncated, found.without_verdict, found.seconds) == (20.0, 0.5, 0, 3.0)


def test_a_sample_without_a_verdict_counts_neither_way() -> None:
    found = measure(records(a="+?", b="--"), 2, [1, 2], 0.0)
    assert found.pass_1.mean == pytest.approx(0.5) and found.without_verdict == 1
    assert found.pass_k[2].n == 1


def test_a_prompt_without_any_verdict_leaves_the_mean() -> None:
    found = measure(records(a="++", b="??"), 2, [1], 0.0)
    assert (found.pass_1.mean, found.pass_1.n) == (1.0, 1)


def test_metrics_name_sampled_and_greedy_apart() -> None:
    sampled, greedy = measure(records(a="+-"), 2, [1, 2], 1.0), measure(records(a="+"), 1, [1], 2.0)
    metrics = Evaluation(sampled, greedy).as_metrics()
    assert (metrics["eval/pass@1"], metrics["eval/greedy"], metrics["eval/seconds"]) == (0.5, 1.0, 3.0)
    assert "eval/greedy" not in Evaluation(sampled, None).as_metrics()


def test_two_models_are_compared_over_the_rows_that_both_were_asked() -> None:
    a = Evaluation(measure(records(a="+-", b="--", c="--"), 2, [1], 0.0), None)
    b = Evaluation(measure(records(c="+-", a="++", d="++"), 2, [1], 0.0), None)
    found = compare(a, b).sampled.difference
    assert (found.mean, found.n) == (0.5, 2)


def test_two_models_without_a_row_in_common_cannot_be_compared() -> None:
    a, b = (Evaluation(measure(records(**{row: "+-"}), 2, [1], 0.0), None) for row in "ab")
    with pytest.raises(DataError, match="no row in common"):
        compare(a, b)


def test_the_primarys_answer_votes_not_the_first_that_was_found() -> None:
    said = [("a", "5", True), ("b", "6", False), ("c", "6", False), ("d", "6", False)]
    found = [
        SampleRecord(
            *(0, "r", "r", "Q", "7", {}),
            {
                "format": Verdict(Outcome.RIGHT, 1.0, answer=thought),
                "math": Verdict(Outcome.RIGHT if right else Outcome.WRONG, float(right), answer=answer),
            },
            Outcome.RIGHT if right else Outcome.WRONG,
            primary="math",
        )
        for thought, answer, right in said
    ]
    assert measure(found, 4, [1, 4], 0.0).maj_k[4] == 0.0
    assert step_stats(found, 4)["unique_answers"] == 0.5


def test_where_another_judged_in_the_primarys_place_its_answer_counts() -> None:
    record = SampleRecord(0, "r", "r", "Q", "7", {}, {"w": Verdict(Outcome.WRONG, 0.0, answer="9")}, primary="v")
    assert record.answer == "9"
    silent = Verdict(Outcome.NO_ANSWER, 0.0)
    record = SampleRecord(0, "r", "r", "Q", "7", {}, {"w": record.verdicts["w"], "v": silent}, primary="v")
    assert record.answer is None
