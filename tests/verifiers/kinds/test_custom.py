"""`python: module:function`: what counts as a verifier, and whose fault an exception is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import BadGold, BadOption, Outcome, Sample, Verdict, build
from grpo_verifiers.kinds.python_function import PythonVerifier

HERE = str(Path(__file__).parent)
_made: list[Any] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def verifier(name: str, **options: Any) -> PythonVerifier:
    made = build("python", function=f"custom_functions:{name}", path=[HERE], workers=1, **options)
    _made.append(made)
    assert isinstance(made, PythonVerifier)
    return made


def judged(name: str, completion: str, row: dict[str, Any], **options: Any) -> Verdict:
    return verifier(name, **options).verify(completion, row)


def test_a_bool_is_right_or_wrong() -> None:
    assert judged("equal", "4", {"answer": "4"}).outcome is Outcome.RIGHT
    assert judged("equal", "5", {"answer": "4"}).outcome is Outcome.WRONG


def test_a_number_is_the_score() -> None:
    got = judged("half", "x", {})
    assert (got.outcome, got.score) == (Outcome.WRONG, 0.5)


def test_async_functions_are_awaited() -> None:
    assert judged("slow_equal", "4", {"answer": "4"}).outcome is Outcome.RIGHT


def test_trl_style_functions_work() -> None:
    assert judged("trl_style", "4", {"answer": "4", "other": 1}).outcome is Outcome.RIGHT


def test_a_verdict_passes_through() -> None:
    got = judged("verdict", "x", {})
    assert (got.outcome, got.answer, got.reason) == (Outcome.RIGHT, "x", "mine")


def test_a_dict_may_carry_score_answer_and_reason() -> None:
    got = judged("a_dict", "x", {})
    assert (got.outcome, got.score, got.answer, got.reason) == (Outcome.WRONG, 0.25, "7", "quarter")


def test_none_is_no_answer_where_the_function_can_judge_the_row() -> None:
    got = judged("none_without_digits", "no idea", {"answer": "4"})
    assert (got.outcome, got.score) == (Outcome.NO_ANSWER, 0.0)


def test_a_form_of_its_own_is_known_from_the_gold_or_from_another_sample_of_the_row() -> None:
    row = {"answer": "4"}
    made = verifier("wants_json")
    assert "option `gold`" in made.verify("no json", row).detail
    made = verifier("wants_json")
    gold = made.compile(row)
    pair = made.judge([Sample("no json", gold), Sample('{"x": "5"}', gold)])
    assert [verdict.outcome for verdict in pair] == [Outcome.WRONG, Outcome.WRONG]
    assert judged("wants_json", "no json", row, gold='{{"x": "{answer}"}}').outcome is Outcome.WRONG


def test_none_is_no_verdict_where_it_is_all_the_function_says() -> None:
    assert judged("always_none", "x", {}).outcome is Outcome.ERROR


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", [1.0], {"scor": 1}, {"outcome": "good"}, {}])
def test_a_return_that_is_no_verdict_is_an_error_that_names_it(value: Any) -> None:
    got = judged("echo", "x", {"value": value})
    assert got.outcome is Outcome.ERROR and "BadReturn" in got.detail


def test_a_list_of_the_wrong_length_is_named() -> None:
    assert "2 scores for 1 completion" in judged("two_scores", "x", {}).detail


def test_an_exception_on_a_completion_is_wrong_where_the_gold_passes() -> None:
    got = judged("fragile", "no number", {"answer": "4"})
    assert (got.outcome, got.score, got.reason) == (Outcome.WRONG, 0.0, "verifier_raised")


def test_an_exception_is_an_error_where_the_gold_fails_too() -> None:
    got = judged("broken", "4", {"answer": "4"})
    assert got.outcome is Outcome.ERROR and "database is gone" in got.detail


def test_the_gold_template_decides_where_it_is_given() -> None:
    assert judged("fragile", "x", {"answer": "4"}, gold="{answer}").outcome is Outcome.WRONG
    assert judged("fragile", "x", {"answer": "4"}, gold="is {answer}").outcome is Outcome.ERROR


def test_a_completion_that_loops_is_over_limit() -> None:
    got = judged("loops_on_x", "x", {}, timeout_s=0.2)
    assert (got.outcome, got.reason) == (Outcome.OVER_LIMIT, "timeout")


def test_a_function_that_always_loops_gives_no_verdict() -> None:
    assert judged("always_loops", "x", {}, timeout_s=0.1).outcome is Outcome.ERROR


@pytest.mark.parametrize("name", ["eats", "eats_the_row", "eats_lists", "eats_later"])
def test_a_function_that_changes_its_row_changes_no_other_sample(name: str) -> None:
    made = verifier(name, cache=False)
    made.start()
    gold = made.compile({"numbers": [1, 2, 3]})
    assert [verdict.score for verdict in made.judge([Sample(text, gold) for text in "abc"])] == [1.0] * 3


def test_a_traceback_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    made = verifier("broken")
    with caplog.at_level(logging.WARNING, "grpo_verifiers"):
        for _ in range(3):
            made.verify("4", {"answer": "4"})
    assert caplog.text.count("Traceback") == 1


def test_columns_are_those_the_function_needs() -> None:
    made = verifier("equal")
    made.start()
    assert made.columns == ("answer",)
    with pytest.raises(BadGold, match="no column `answer`"):
        made.compile({"anser": 1})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_completion", "takes no parameter `completion`"),
        ("missing", "has no `missing`; it has"),
        ("NOT_A_FUNCTION", "is a int, not a function"),
        ("inside_trainer", "exists only inside a trainer"),
    ],
)
def test_a_function_that_is_no_verifier_is_refused_at_load(name: str, says: str) -> None:
    with pytest.raises(BadOption, match=says):
        verifier(name).start()


def test_a_module_that_is_not_there_is_named() -> None:
    made = build("python", function="no_such_module:f")
    with pytest.raises(BadOption, match="ModuleNotFoundError"):
        made.start()


@pytest.mark.parametrize("spec", ["", "module", "module:", ":f"])
def test_a_spec_without_module_and_function_is_refused(spec: str) -> None:
    with pytest.raises(BadOption, match="is not `module:function`"):
        build("python", function=spec)


def test_a_file_may_be_named_instead_of_a_module() -> None:
    made = build("python", function="custom_functions.py:equal", path=[HERE], workers=1)
    assert made.verify("4", {"answer": "4"}).outcome is Outcome.RIGHT
    made.close()
