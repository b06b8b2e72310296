"""Lists of accepted answers, their JSON text, and golds that are none."""

from __future__ import annotations

import pytest

from grpo_verifiers import BadGold, build

GROUP = {"pattern": r"answer: (?P<answer>.*)", "match": "answer_group"}


@pytest.mark.parametrize("gold", [["2/3", "7"], '["2/3", "7"]', ' ["2/3","7"] '])
@pytest.mark.parametrize("kind", ["exact", "math", "numeric"])
def test_any_item_of_a_list_is_right_and_the_list_itself_is_not(kind: str, gold: object) -> None:
    verifier = build(kind)
    for said, outcome in (("7", "right"), ("2/3", "right"), ("8", "wrong"), ('["2/3", "7"]', "wrong")):
        assert verifier.verify(f"\\boxed{{{said}}}", {"answer": gold}).outcome == outcome, said


def test_a_group_of_a_pattern_takes_lists_too() -> None:
    verifier = build("regex", **GROUP)
    assert verifier.verify("answer: b", {"answer": ["a", "b"]}).outcome == "right"
    assert verifier.verify("answer: b", {"answer": '["a", "b"]'}).outcome == "right"
    assert verifier.verify("answer: c", {"answer": ["a", "b"]}).outcome == "wrong"


@pytest.mark.parametrize("kind", ["exact", "math"])
def test_a_written_list_of_numbers_stays_what_it_is(kind: str) -> None:
    """`[2, 3]` is an interval or a value: paying 2 for it would pay a wrong answer."""
    verifier = build(kind)
    assert verifier.verify("\\boxed{[2, 3]}", {"answer": "[2, 3]"}).outcome == "right"
    assert verifier.verify("\\boxed{2}", {"answer": "[2, 3]"}).outcome == "wrong"


def test_two_numbers_are_a_range_and_two_texts_are_two_answers() -> None:
    verifier = build("numeric")
    assert verifier.verify("\\boxed{4.5}", {"answer": [4, 5]}).outcome == "right"
    assert verifier.verify("\\boxed{4.5}", {"answer": ["4", "5"]}).outcome == "wrong"
    assert verifier.verify("\\boxed{9}", {"answer": ["1", "3..5", 9]}).outcome == "right"


def test_choice_reads_the_text_of_a_list_as_the_list() -> None:
    row = {"answer": '["A", "C"]', "choices": ["w", "x", "y"]}
    assert build("choice").verify("\\boxed{A, C}", row).outcome == "right"


@pytest.mark.parametrize("kind", ["exact", "math", "numeric", "regex"])
@pytest.mark.parametrize("gold", [[], [None], ["a", None], [{"a": 1}, "b"]])
def test_a_list_with_something_else_in_it_is_a_bad_gold(kind: str, gold: object) -> None:
    verifier = build(kind, **(GROUP if kind == "regex" else {}))
    with pytest.raises(BadGold):
        verifier.compile({"answer": gold})


@pytest.mark.parametrize("gold", ["N/A", "proof", "notfound", "None", "null", "(Proof).", ["3", "n/a"], '["nan"]'])
def test_what_stands_where_there_is_no_answer_is_a_bad_gold_of_maths(gold: object) -> None:
    with pytest.raises(BadGold, match="stands where there is none"):
        build("math").compile({"answer": gold})


@pytest.mark.parametrize(
    "gold", ["\\text{none of these}", "\\text{None}", "n", "\\emptyset", "no solution", "-1", "0", "i"]
)
def test_answers_that_look_a_little_like_nothing_are_answers(gold: str) -> None:
    assert build("math").verify(f"\\boxed{{{gold}}}", {"answer": gold}).outcome == "right"
