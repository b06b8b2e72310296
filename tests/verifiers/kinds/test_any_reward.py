"""`python`: any finite number is the reward as it stands; what is no number is the function's fault and never a wrong answer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import BadGold, BadOption, Outcome, Sample, Verdict, build
from grpo_verifiers.kinds.python_function import PythonVerifier
from grpo_verifiers.verdict import floored, no_answer, over_limit, right, wrong

HERE = str(Path(__file__).parent)
_made: list[Any] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def verifier(name: str, **options: Any) -> PythonVerifier:
    made = build("python", function=f"any_reward:{name}", **{"path": [HERE], "workers": 1} | options)
    _made.append(made)
    assert isinstance(made, PythonVerifier)
    return made


def judged(made: PythonVerifier, texts: list[str], row: dict[str, Any] | None = None) -> list[Verdict]:
    gold = made.compile(row or {"answer": "4"})
    return made.judge([Sample(text, gold, "q") for text in texts])


@pytest.mark.parametrize(
    ("name", "text", "score", "outcome"),
    [
        ("signed", "4", 1.0, "right"),
        ("signed", "5", -1.0, "wrong"),
        ("signed", "?", 0.0, "wrong"),
        ("doubled", "4", 2.0, "right"),
        ("doubled", "5", 0.5, "wrong"),
        ("doubled", "x", 0.0, "wrong"),
        ("ten", "", 0.0, "wrong"),
        ("ten", "0123456789", 10.0, "right"),
        ("named", "bool", 1.0, "right"),
        ("named", "float32", 0.5, "wrong"),
        ("named", "one", 0.25, "wrong"),
        ("named", "fraction", 1 / 3, "wrong"),
        ("named", "decimal", -2.5, "wrong"),
        ("named", "int", 7.0, "right"),
        ("named", "torch", 1.5, "right"),
        ("named", "dict", -3.0, "wrong"),
    ],
)
def test_a_finite_number_is_the_reward(name: str, text: str, score: float, outcome: str) -> None:
    (got,) = judged(verifier(name), [text])
    assert (got.score, got.outcome.value) == (score, outcome)


def test_right_at_says_what_is_right() -> None:
    made = verifier("ten", right_at=5.0)
    assert [v.outcome.value for v in judged(made, ["1234", "12345"])] == ["wrong", "right"]
    made = verifier("signed", right_at=0.0)
    assert [v.outcome.value for v in judged(made, ["5", "?"])] == ["wrong", "right"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nan", "nan; return a finite number"),
        ("inf", "-inf"),
        ("huge", "return a finite number"),
        ("text", "'1.0' (str)"),
        ("complex", "1j (complex)"),
        ("list", "[1.0] (list)"),
        ("array", "(ndarray)"),
        ("nan32", "nan"),
        ("decimal_nan", "NaN"),
        ("score_nan", "nan"),
        ("score_text", "'0.5'"),
    ],
)
def test_what_is_no_number_is_an_error_with_place_value_and_mend(text: str, says: str) -> None:
    good, bad = judged(verifier("named"), ["int", text])
    assert good.score == 7.0
    assert bad.outcome is Outcome.ERROR and bad.score is None and bad.reason == "bad_return"
    assert says in bad.detail and "any_reward.py:" in bad.detail and "`named`" in bad.detail


def test_a_range_is_held() -> None:
    made = verifier("ten", range=[0, 3])
    low, high = judged(made, ["12", "1234"])
    assert low.score == 2.0 and high.outcome is Outcome.ERROR and "`range` says [0, 3]" in high.detail


@pytest.mark.parametrize("range_", [[1], [1, 1], [2, 1], [0, math.inf], [math.nan, 1]])
def test_a_range_that_is_none_is_refused(range_: list[float]) -> None:
    with pytest.raises(BadOption, match="two numbers"):
        verifier("ten", range=range_)


def test_a_timeout_never_beats_a_wrong_answer() -> None:
    made = verifier("signed", timeout_s=0.3)
    group = judged(made, ["5", "slow", "4"])
    assert group[1].outcome is Outcome.OVER_LIMIT
    assert [v.score for v in floored(group, made.low)] == [-1.0, -1.0, 1.0]
    alone = judged(made, ["4", "slow"])
    assert [v.score for v in floored(alone, made.low)] == [1.0, 0.0]  # nothing of the group before
    made = verifier("signed", timeout_s=0.3, range=[-2, 1])
    assert [v.score for v in floored(judged(made, ["4", "slow"]), made.low)] == [1.0, -2.0]


def test_the_floor_of_a_group() -> None:
    group = [right(score=2.0), no_answer("x"), over_limit("timeout"), wrong(score=-0.5)]
    assert [v.score for v in floored(group, None)] == [2.0, -0.5, -0.5, -0.5]
    assert floored(floored(group, None), None) == floored(group, None)
    assert [v.score for v in floored(group, 0.0)] == [2.0, 0.0, 0.0, -0.5]
    assert [v.score for v in floored([right(score=3.0), over_limit("t")], None)] == [3.0, 0.0]
    assert [v.score for v in floored([right(score=3.0), over_limit("t")], 1.0)] == [3.0, 1.0]


def test_an_exception_on_one_completion_is_that_completions() -> None:
    got = judged(verifier("signed"), ["boom", "4"])
    assert [(v.outcome.value, v.score) for v in got] == [("wrong", 0.0), ("right", 1.0)]
    assert "any_reward.py:" in got[0].detail


# -- whole batches --------------------------------------------------------------------------------------------


def test_a_function_that_takes_lists_sees_the_whole_batch() -> None:
    made = verifier("lists", workers=2)
    assert made.wants_whole_batch
    assert [v.score for v in judged(made, ["a", "b", "c"])] == [3.0] * 3
    assert [v.score for v in judged(verifier("lists", batch="one"), ["a", "b", "c"])] == [1.0] * 3


def test_one_completion_that_raises_does_not_cost_the_others() -> None:
    got = judged(verifier("lists"), ["a", "boom", "c"])
    assert [(v.outcome.value, v.score) for v in got] == [("right", 2.0), ("wrong", 0.0), ("right", 2.0)]


def test_a_function_that_names_the_group_sees_the_group() -> None:
    made = verifier("of_group")
    a, b = made.compile({"answer": "1"}), made.compile({"answer": "2"})
    got = made.judge([Sample("x", a, "q"), Sample("x", b, "q"), Sample("y", a, "q")])
    assert [v.score for v in got] == [2.0, 1.0, 2.0]


def test_a_list_of_another_length_is_an_error_for_all() -> None:
    got = judged(verifier("only_one"), ["a", "b"])
    assert all(v.outcome is Outcome.ERROR and "1 scores for 2 completions" in v.detail for v in got)


def test_arrays_are_lists() -> None:
    assert [v.score for v in judged(verifier("arrays"), ["a", "bb"])] == [1.0, 2.0]


def test_none_in_a_list_is_no_verdict() -> None:
    got = judged(verifier("some_none"), ["other", "x"])
    assert [v.outcome.value for v in got] == ["error", "right"]


# -- forms of other tools -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scores"), [("chat", [1.0, -1.0]), ("chat_that_swallows", [1.0, 0.5]), ("chat_loop", [5.0, 4.0])]
)
def test_functions_for_message_lists_are_found_by_trying(name: str, scores: list[float]) -> None:
    made = verifier(name)
    assert [v.score for v in judged(made, ["good", "bad"])] == scores
    assert made.remarks() == [f"`any_reward:{name}` takes completions as lists of messages (found by trying once)"]


def test_functions_for_texts_stay_so_and_say_so() -> None:
    made = verifier("lists")
    judged(made, ["a"])
    assert made.remarks() == ["`any_reward:lists` takes completions as texts (found by trying once)"]


@pytest.mark.parametrize(
    ("function", "row", "texts", "scores"),
    [
        ("accuracy_reward", {"solution": "$4$"}, ["\\boxed{4}", "\\boxed{5}"], [1.0, 0.0]),
        ("think_format_reward", {}, ["<think>a</think>b", "b"], [1.0, 0.0]),
    ],
)
def test_rewards_of_trl_itself(function: str, row: dict[str, Any], texts: list[str], scores: list[float]) -> None:
    made = build("python", function=f"trl.rewards:{function}", workers=1, timeout_s=60.0)
    _made.append(made)
    gold = made.compile(row)
    assert [v.score for v in made.judge([Sample(t, gold, "q") for t in texts])] == scores
    assert "lists of messages" in made.remarks()[0]


@pytest.mark.parametrize(
    "row",
    [
        {"ground_truth": "4"},
        {"answer": "4"},
        {"reward_model": {"ground_truth": "4", "style": "rule"}, "data_source": "d"},
        {"reward_model": '{"ground_truth": "4"}'},
    ],
)
def test_functions_of_verl(row: dict[str, Any]) -> None:
    got = judged(verifier("compute_score"), ["4", "5"], row)
    assert [(v.score, v.answer) for v in got] == [(1.0, "4"), (-1.0, "5")]
    assert [v.score for v in judged(verifier("compute_scores"), ["4", "5"], row)] == [1.0, 0.0]


def test_a_row_without_a_gold_for_verl_is_named() -> None:
    made = verifier("compute_score")
    with pytest.raises(BadGold, match="no column `ground_truth`"):
        made.compile({"question": "x"})


def test_rubric_functions() -> None:
    row = {"answer": "4", "info": '{"k": 1}'}
    assert [v.score for v in judged(verifier("rubric"), ["4", "5"], row)] == [1.0, 0.0]
    with pytest.raises(BadOption, match="load_environment"):
        verifier("needs_parser").start()


def test_token_ids_reach_the_function_where_there_are_some() -> None:
    made = verifier("of_tokens")
    gold = made.compile({})
    got = made.judge([Sample("a", gold, "q", (1, 2)), Sample("b", gold, "q", (1, 2, 3))])
    assert [v.score for v in got] == [-2.0, -3.0]
    (lost,) = made.judge([Sample("a", gold, "q")])
    assert lost.outcome is Outcome.ERROR and "completion_ids" in lost.detail


def test_objects_with_call_are_functions() -> None:
    assert judged(verifier("grader"), ["-3.5"])[0].score == -3.5


# -- waiting rewards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), [("waits", {}), ("waits_in_threads", {"concurrency": 32})])
def test_32_waits_of_a_second_take_less_than_three(name: str, options: dict[str, Any]) -> None:
    made = verifier(name, **options)
    made.start()
    gold = made.compile({"answer": "x"})
    began = time.monotonic()
    got = made.judge([Sample(str(i), gold, "q") for i in range(32)])
    assert time.monotonic() - began <= 3.0
    assert [v.score for v in got] == [1.0] * 32


def test_a_call_that_fails_for_the_other_side_is_made_again_and_never_blamed_on_the_completion() -> None:
    got = judged(verifier("flaky", retries=1), ["late", "away", "bad", "ok", "ok"])
    assert [v.outcome.value for v in got] == ["right", "error", "wrong", "right", "right"]
    assert got[1].reason == "unanswered" and "ConnectionError: no route" in got[1].detail
    assert [v.score for v in got[3:]] == [1.0, 1.0]  # called once for equal content


# -- prints ---------------------------------------------------------------------------------------------------


def test_prints_are_counted_and_logged(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    made = verifier("logs")
    judged(made, ["a", "b"])
    made.close()
    assert made.printed >= 1
    assert "log_metric n=2" in caplog.text
    assert "log_metric" not in "".join(capfd.readouterr())


def test_extra_columns_of_a_sample_are_its_detail() -> None:
    assert [v.detail for v in judged(verifier("logs"), ["a", "b"])] == ["seen=A", "seen=B"]
