"""What a verdict of the maths verifier says, and what its options change."""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path

import pytest

from grpo_verifiers import BadGold, BadOption, Outcome, build
from grpo_verifiers.maths.extract import extract as find_answer
from grpo_verifiers.maths.extract import mark_of

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("GRPO_DATA", ROOT.parent / "shared" / "data"))


def reason(gold: object, answer: str, **options: object) -> str:
    return build("math", **options).verify("\\boxed{" + answer + "}", {"answer": gold}).reason


def is_right(gold: object, answer: str, **options: object) -> bool:
    return build("math", **options).verify("\\boxed{" + answer + "}", {"answer": gold}).outcome is Outcome.RIGHT


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("no box here", "no_box"),
        ("\\boxed{}", "empty_box"),
        ("\\boxed{5", "unterminated_box"),
        ("<think>\\boxed{5}", "in_thinking"),
        ("\\boxed{5} or 6", "hedge"),
        ("\\boxed{5 \\text{ or } 6}", "hedge"),
        ("The answer is not \\boxed{5}", "denied"),
        ("\\boxed{(5,6)}", "kind"),
        ("\\boxed{" + "1+" * 4000 + "1}", "too_long"),
        ("\\boxed{6}", "unequal"),
        ("\\boxed{5}", "equal:rational"),
        ("\\boxed{\\text{your answer}}", "placeholder"),
        (None, "not_text"),
    ],
)
def test_every_verdict_says_why(response: object, expected: str) -> None:
    verdict = build("math").verify(response, {"answer": "5"})  # type: ignore[arg-type]
    assert verdict.reason == expected


def test_the_extracted_text_comes_with_the_verdict() -> None:
    assert build("math").verify("so \\boxed{ \\frac12 }.", {"answer": "0.5"}).answer == "\\frac12"


@pytest.mark.parametrize(
    "gold", [None, "", "   ", True, [], "\\boxed{}", "\\frac{1}{2", {"a": 1}, "?", float("nan"), "\\frac{1}{0}"]
)
def test_a_gold_without_a_kind_is_a_data_error(gold: object) -> None:
    with pytest.raises(BadGold):
        build("math").compile({"answer": gold})


def test_a_gold_survives_pickling_and_verifies_itself() -> None:
    maths = build("math")
    gold = maths.compile({"answer": "\\frac{\\pi}{2}"})
    assert pickle.loads(pickle.dumps(gold)) == gold
    text = maths.gold_text({"answer": "\\frac{\\pi}{2}"})
    assert text is not None
    assert maths.verify(text, {"answer": "\\frac{\\pi}{2}"}).score == 1.0


def test_a_list_of_golds_accepts_any_of_them() -> None:
    assert is_right(["\\frac12", "50\\%"], "0.5")
    assert not is_right(["5", "6"], "7")


def test_numbers_are_golds() -> None:
    assert is_right(12, "12")
    assert is_right(0, "0")
    assert is_right(0.5, "\\frac{1}{2}")


@pytest.mark.parametrize(
    ("option", "value", "gold", "answer", "by_default", "changed"),
    [
        ("units", "ignore", "5\\text{ cm}", "5\\text{ m}", False, True),
        ("units", "convert", "24\\text{ inches}", "2\\text{ feet}", False, True),
        ("percent", "value", "50", "50\\%", True, False),
        ("percent", "sign", "0.5", "50\\%", True, False),
        ("tolerance", 1e-3, "\\pi", "3.1416", False, True),
        ("round_gold", False, "3.14", "\\pi", True, False),
        ("order", "kept", "1,2", "2,1", True, False),
        ("order", "free", "(1,2)", "(2,1)", False, True),
        ("max_chars", 3, "12345", "12344+1", True, False),
    ],
)
def test_an_option_changes_what_counts(
    option: str, value: object, gold: str, answer: str, by_default: bool, changed: bool
) -> None:
    assert is_right(gold, answer) is by_default
    assert is_right(gold, answer, **{option: value}) is changed


def test_extract_decides_where_the_answer_is_looked_for() -> None:
    line, box = "The answer is 5.", "\\boxed{5}"
    for extract, from_line, from_box in (
        ("boxed", 0.0, 1.0),
        ("answer_line", 1.0, 0.0),
        ("last_box_or_line", 1.0, 1.0),
    ):
        maths = build("math", extract=extract)
        assert (maths.verify(line, {"answer": "5"}).score, maths.verify(box, {"answer": "5"}).score) == (
            from_line,
            from_box,
        )


@pytest.mark.parametrize("kind", ["math", "numeric"])
@pytest.mark.parametrize(
    ("mark", "response", "expected"),
    [
        ("A:", "She makes 9 * 2 = $18 every day.\nA: 18", Outcome.RIGHT),
        ("A:", "A: 17\nA: 18", Outcome.RIGHT),
        ("A:", "A: 18\nA: 17", Outcome.WRONG),
        ("A:", "A: 18\nNote that \\boxed{3} is another.", Outcome.RIGHT),
        ("A:", "- A: \\boxed{18}", Outcome.RIGHT),
        ("A:", "\\boxed{18}", Outcome.RIGHT),
        ("A:", "It is 18", Outcome.NO_ANSWER),
        ("A:", "Q: A: 18", Outcome.NO_ANSWER),
        ("A:", "A:", Outcome.NO_ANSWER),
        ("A:", "A: 18 or 19", Outcome.WRONG),
        ("A:", "<think>A: 18", Outcome.NO_ANSWER),
        ("Final answer:", "**Final answer:** $18$.", Outcome.RIGHT),
        ("<SOLUTION>", "x\n<SOLUTION>\n18\n</SOLUTION>", Outcome.RIGHT),
        ("<SOLUTION>", "So <SOLUTION>18</SOLUTION>", Outcome.RIGHT),
        ("<SOLUTION>", "<SOLUTION>18", Outcome.NO_ANSWER),
    ],
)
def test_a_mark_names_the_line_that_gives_the_answer(kind: str, mark: str, response: str, expected: Outcome) -> None:
    assert build(kind, mark=mark).verify(response, {"answer": "18"}).outcome is expected


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Done.\nA: 18", "A:"),
        ("**Final Answer:** 5", "Final Answer:"),
        ("<SOLUTION>\n5", "<SOLUTION>"),
        ("So it is 5.", ""),
    ],
)
def test_the_mark_of_a_last_line_is_named(text: str, mark: str) -> None:
    assert mark_of(text) == mark


@pytest.mark.parametrize(
    "bad",
    [
        {"mark": " A:"},
        {"extract": "last"},
        {"tolerance": 2.0},
        {"max_chars": 0},
        {"units": "si"},
        {"seconds": 0},
        {"extracts": "boxed"},
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        build("math", **bad)


@pytest.mark.data
@pytest.mark.skipif(
    not DATA.is_dir() and os.environ.get("CI") != "true", reason="needs GSM8K and MATH-500 in GRPO_DATA"
)
@pytest.mark.parametrize("name", ["gsm8k_test.jsonl", "gsm8k_train.jsonl", "math500.jsonl"])
def test_every_gold_verifies_against_itself(name: str) -> None:
    maths = build("math")
    with (DATA / name).open() as file:
        answers = [json.loads(line)["answer"] for line in file]
    failed = [a for a in answers if maths.verify(f"\\boxed{{{a}}}", {"answer": a}).outcome is not Outcome.RIGHT]
    assert failed == []


@pytest.mark.parametrize(
    "unit",
    ["} % \\boxed{1} ", "<!-- \\boxed{", "&lt;think ", "<|channel|>", "\\phantom{\\boxed{1}} ", "\\boxed{1} vs "],
)
def test_a_megabyte_of_one_mark_is_read_in_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    find_answer(text)
    assert time.process_time() - start < 0.8


@pytest.mark.parametrize("answer", ["9" * 50_000, "0." + "9" * 50_000, "9" * 50_000 + "e5", "1 2/" + "9" * 50_000])
def test_more_digits_than_python_reads_are_a_wrong_answer_and_no_fault(answer: str) -> None:
    verdict = build("math", max_chars=100_000).verify("\\boxed{" + answer + "}", {"answer": "5"})
    assert (verdict.outcome, verdict.score) == (Outcome.WRONG, 0.0)


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("\\frac{12}{5}", "\\frac12 5", False),
        ("\\frac{5}{2}", "\\frac12 5", True),
        ("\\frac12 5", "\\frac{12}{5}", False),
        ("\\binom{10}{3}", "\\binom10 3", False),
        ("\\frac{1}{23}", "\\frac1 2 3", False),
        ("\\frac{3}{2}", "\\frac1 2 3", True),
        ("\\frac{12}{5}x", "\\frac12 5x", False),
        ("\\sqrt{\\frac{12}{5}}", "\\sqrt{\\frac12 5}", False),
        ("(\\frac{12}{5}, 1)", "(\\frac12 5, 1)", False),
        ("\\sum_{k=1}^{n}\\frac{12}{5}", "\\sum_{k=1}^n \\frac12 5", False),
        ("\\sum_{k=1}^{n} k", "\\sum_{k=1}^n k", True),
        ("2 3/4", "{2}{3}/4", False),
        ("x^{2345}", "x^2 345", False),
        ("50", "\\sqrt2 500", False),
        ("12345", "12 345", True),
    ],
)
def test_one_string_of_tokens_read_in_two_ways_is_compared_by_its_trees(gold: str, answer: str, expected: bool) -> None:
    assert is_right(gold, answer) is expected


SQUARES = ["square units", "units}^2", "sq. units", "units squared"]
CUBES = ["cubic units", "units}^3", "cu units", "units cubed"]


@pytest.mark.parametrize("gold", [*SQUARES, *CUBES])
def test_square_units_without_a_name_are_no_cubic_ones(gold: str) -> None:
    def written(unit: str) -> str:
        return f"30\\text{{ {unit}" + ("" if "}" in unit else "}")

    for answer in [*SQUARES, *CUBES]:
        assert is_right(written(gold), written(answer)) is ((gold in SQUARES) == (answer in SQUARES)), answer
    power = 2 if gold in SQUARES else 3
    assert is_right(written(gold), "30")
    assert is_right(written(gold), f"30\\text{{ cm}}^{power}")
    assert not is_right(written(gold), "30\\text{ cm}")
    assert not is_right(written(gold), f"30\\text{{ cm}}^{5 - power}")
