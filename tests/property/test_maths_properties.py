"""What must hold for any text: verdicts never raise, are deterministic, and do not depend on how an answer is spelt."""

from __future__ import annotations

import gc
import time

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from grpo_verifiers import Outcome, build

MATHS = build("math")
QUICK = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

_PIECES = (
    "\\boxed{ } { } \\frac \\sqrt ( ) [ ] ^ _ 1 2 10 0 x y n + - * / = < , ; or and \\text{ \\pi \\infty \\cup \\{ \\} | ! % \\% "
    "\\pm $ \\left \\right <think> </think> #### <answer> </answer> answer is . e i \\sin \\log \\begin{pmatrix} \\end{pmatrix} & \\\\ "
    "\\begin{cases} \\end{cases} cm \\circ : \\overline \\binom ' \\int \\ldots \\in ½ − √ π \u200b \ud83d"
)
PIECES = st.sampled_from(_PIECES.split(" "))
SOUP = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200)

WHOLE = st.integers(-(10**6), 10**6)


def _fraction(pair: tuple[int, int]) -> str:
    top, bottom = pair
    return f"{'-' if top < 0 else ''}\\frac{{{abs(top)}}}{{{bottom}}}"


NUMBERS = st.one_of(
    WHOLE.map(str),
    st.tuples(st.integers(-99, 99), st.integers(2, 99)).map(_fraction),
    st.tuples(st.integers(-99, 99), st.integers(1, 999)).map(lambda p: f"{p[0]}.{p[1]:03d}"),
    st.tuples(st.integers(2, 20), st.integers(2, 20)).map(lambda p: f"{p[0]}\\sqrt{{{p[1]}}}"),
    st.integers(1, 50).map(lambda n: f"{n}\\pi"),
)
ANSWERS = st.one_of(
    NUMBERS,
    st.lists(NUMBERS, min_size=2, max_size=4).map(lambda items: "(" + ", ".join(items) + ")"),
    st.lists(NUMBERS, min_size=2, max_size=4).map(", ".join),
    st.lists(NUMBERS, min_size=2, max_size=4).map(lambda items: "\\{" + ", ".join(items) + "\\}"),
    st.tuples(NUMBERS, NUMBERS).map(lambda p: f"{p[0]} x + {p[1]} y"),
    NUMBERS.map(lambda n: f"x > {n}"),
)
RESPELLINGS = [
    lambda a: f" {a} ",
    lambda a: f"${a}$",
    lambda a: f"\\({a}\\)",
    lambda a: f"{a}.",
    lambda a: a.replace("\\frac", "\\dfrac"),
    lambda a: a.replace("-", "−"),
    lambda a: a.replace(", ", " ,\\ "),
    lambda a: a.replace("(", "\\left(").replace(")", "\\right)"),
    lambda a: a.replace("\\pi", "π"),
    lambda a: "{" + a + "}",
    lambda a: f"\\displaystyle {a}\\,",
    lambda a: f"\\mathbf{{{a}}}",
]


def outcome(gold: str, answer: str) -> Outcome:
    return MATHS.verify(f"So \\boxed{{{answer}}}", {"answer": gold}).outcome


@QUICK
@given(
    SOUP,
    st.sampled_from(
        [
            "5",
            "\\frac{1}{2}",
            "(1,2)",
            "x>3",
            "\\text{red}",
            "B",
            "x^2+1",
            "\\{1,2\\}",
            "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
        ]
    ),
)
def test_no_text_makes_it_raise_or_fail(text: str, gold: str) -> None:
    for response in (text, f"\\boxed{{{text}}}"):
        verdict = MATHS.verify(response, {"answer": gold})
        assert verdict.outcome is not Outcome.ERROR
        assert verdict.reason


@QUICK
@given(SOUP)
def test_the_same_text_gets_the_same_verdict_from_a_fresh_verifier(text: str) -> None:
    first, second = (build("math").verify(f"\\boxed{{{text}}}", {"answer": "5"}) for _ in range(2))
    assert (first.outcome, first.answer, first.reason) == (second.outcome, second.answer, second.reason)


@QUICK
@given(ANSWERS)
def test_an_answer_is_right_for_itself(answer: str) -> None:
    assert outcome(answer, answer) is Outcome.RIGHT


@QUICK
@given(ANSWERS, st.sampled_from(RESPELLINGS))
def test_a_respelt_answer_stays_right(answer: str, respell: object) -> None:
    assert outcome(answer, respell(answer)) is Outcome.RIGHT  # type: ignore[operator]
    assert outcome(respell(answer), answer) is Outcome.RIGHT  # type: ignore[operator]


@QUICK
@given(ANSWERS, ANSWERS, st.sampled_from(RESPELLINGS))
def test_a_respelling_never_changes_a_verdict(gold: str, answer: str, respell: object) -> None:
    assert outcome(gold, respell(answer)) is outcome(gold, answer)  # type: ignore[operator]


@QUICK
@given(WHOLE.map(str) | NUMBERS, st.data())
def test_one_changed_digit_is_never_right(gold: str, data: st.DataObject) -> None:
    places = [i for i, mark in enumerate(gold) if mark.isdigit()]
    at = data.draw(st.sampled_from(places))
    digit = data.draw(st.sampled_from("0123456789"))
    changed = gold[:at] + digit + gold[at + 1 :]
    assume(_value(changed) is not None and abs(_value(changed) - _value(gold)) > 1e-12)
    assert outcome(gold, changed) is not Outcome.RIGHT


def _value(text: str) -> float:
    import math
    import re

    text = re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", lambda m: f"({m[1]}/{m[2]})" if int(m[2]) else "nan", text)
    text = text.replace("\\pi", "*math.pi")
    text = re.sub(r"\\sqrt\{(\d+)\}", r"*math.sqrt(\1)", text)
    text = re.sub(r"(?<![\d.])0+(?=\d)", "", text)
    return float(eval(text, {"math": math, "nan": math.nan}))  # our own generated numbers


def test_cost_is_linear_in_the_length_of_the_response() -> None:
    shapes = [
        "word ",
        "\\boxed{3} ",
        "\\boxed{",
        "$ x $ ",
        "</think> ",
        "final answer is ",
        "{",
        "\\( ",
        "#### 4\n",
        "<answer>",
        "or ",
        "% \\boxed{4}\n",
        "<",
    ]
    gc.collect()
    gc.freeze()  # what other tests have left is no cost of this one: a full collection would look at all of it
    for shape in shapes:
        spent = []
        for length in (50_000, 400_000):
            text = shape * (length // len(shape)) + "\\boxed{5}"
            start = time.process_time()
            MATHS.verify(text, {"answer": "5"})
            spent.append(time.process_time() - start)
        assert spent[1] < 8 * 4 * spent[0] + 0.05, (shape, spent)
    gc.unfreeze()
