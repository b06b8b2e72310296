"""What counts as a proof of equality: no cut-off does, and no prime that anybody knows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import BadGold, Outcome, build
from grpo_verifiers.maths.comparing import finite_field
from grpo_verifiers.maths.proving.symbolic import NotAlgebraic, is_zero
from grpo_verifiers.maths.reading.answers import read_answer
from grpo_verifiers.verifier import Verifier

CASES = Path(__file__).resolve().parents[2] / "cases"


@pytest.fixture(scope="module")
def maths() -> Iterator[Verifier]:
    verifier = build("math")
    yield verifier
    verifier.close()


def zero(a: str, b: str) -> bool | None:
    """Whether two answers differ by nothing."""
    return is_zero(("+", read_answer(a).tree, ("neg", read_answer(b).tree)))


NEAR = [
    ("\\sqrt{10}", "\\sqrt{10+10^{-40}}"),
    ("\\sqrt{10}", "\\sqrt{10+10^{-400}}"),
    ("\\sqrt{10}", "\\sqrt{10+10^{-4000}}"),
    ("\\ln 2", "\\ln(2+10^{-40})"),
    ("\\ln 2", "\\ln(2+10^{-300})"),
    ("\\arctan 1", "\\arctan(1+10^{-30})"),
    ("\\pi", "\\sqrt{\\pi^2+10^{-50}}"),
    ("e^x", "e^{x+10^{-50}}"),
    ("\\sin x", "\\sin(x+10^{-40})"),
    ("e^{\\pi\\sqrt{163}}", "262537412640768744"),
    ("1-10^{-20}(1+\\sqrt2)", "1+\\sqrt{10^{-40}(3+2\\sqrt2)}"),
    ("1+10^{-20}\\ln((1-\\sqrt2)(1-\\sqrt3))", "1+10^{-20}(\\ln(1-\\sqrt2)+\\ln(1-\\sqrt3))"),
    ("5", "\\max\\{5,x\\}"),
    ("a+b", "a+\\sqrt{b^2}"),
    ("[0,2]", "[0,1]\\cup[1+10^{-40},2]"),
    ("\\{1,2,3\\}", "\\{n\\in\\mathbb{Z}:1\\le n\\le 3-10^{-12}\\}"),
]


@pytest.mark.parametrize(("gold", "answer"), NEAR)
def test_what_differs_beyond_the_digits_of_a_float_is_told_apart(maths: Verifier, gold: str, answer: str) -> None:
    verdict = maths.verify(f"\\boxed{{{answer}}}", {"answer": gold})
    assert (verdict.outcome, verdict.score) == (Outcome.WRONG, 0.0)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1+10^{-20}(1+\\sqrt2)", "1+\\sqrt{10^{-40}(3+2\\sqrt2)}"),
        ("\\sqrt{22+2\\sqrt5}+\\sqrt5", "\\sqrt{16-2\\sqrt{29}+2\\sqrt{55-10\\sqrt{29}}}+\\sqrt{11+2\\sqrt{29}}"),
        ("\\sqrt{11}", "\\tan\\frac{3\\pi}{11}+4\\sin\\frac{2\\pi}{11}"),
        ("4", "\\sqrt[3]{2+11i}+\\sqrt[3]{2-11i}"),
        ("2\\sqrt{71}", "\\sqrt{284}"),
        ("\\frac{1}{\\sqrt{x^2+1}}", "\\frac{\\sqrt{x^2+1}}{x^2+1}"),
        ("x\\sqrt{y}", "\\sqrt{x^2y}"),
        ("(ab)^n", "a^n b^n"),
        ("c^{\\ln a}", "a^{\\ln c}"),
        ("\\ln((1+x)(2+x))", "\\ln(1+x)+\\ln(2+x)"),
    ],
)
def test_what_is_equal_is_proved(maths: Verifier, gold: str, answer: str) -> None:
    assert maths.verify(f"\\boxed{{{answer}}}", {"answer": gold}).outcome is Outcome.RIGHT


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("\\sqrt{5+2\\sqrt6}", "\\sqrt2+\\sqrt3", True),
        ("\\cos 20^\\circ\\cos 40^\\circ\\cos 80^\\circ", "1/8", True),
        ("e^{i\\pi/3}", "\\frac12+\\frac{\\sqrt3}{2}i", True),
        ("\\csc 30^\\circ+\\sec 60^\\circ+\\cot 45^\\circ", "5", True),
        ("\\sqrt[3]{-8}", "-2", True),
        ("(-8)^{1/3}", "1+\\sqrt3 i", True),
        ("(-8)^{1/3}", "-2", False),
        ("\\sqrt{10+10^{-900}}", "\\sqrt{10}", False),
        ("\\cos\\frac{\\pi}{7}", "0.9009688679024191", False),
    ],
)
def test_a_separation_bound_decides_algebraic_numbers(a: str, b: str, expected: bool) -> None:
    assert zero(a, b) is expected


def test_a_number_that_is_not_known_to_be_algebraic_is_left_to_others() -> None:
    with pytest.raises(NotAlgebraic):
        zero("\\ln 2", "\\ln 3")


def test_a_bound_that_asks_for_too_many_digits_decides_nothing() -> None:
    product = "".join(f"\\cos(\\frac{{{i}\\pi}}{{131}})" for i in range(1, 66))
    assert zero(f"2^{{65}}{product}", "1") is None


def test_the_two_primes_of_the_finite_field_are_others_in_every_process(maths: Verifier) -> None:
    code = (
        "from grpo_verifiers.maths.comparing import finite_field as f; f.Field()\n"
        "print(*(p for p, _ in f._PRIMES_DRAWN))\n"
        "assert all(pow(s, q, p) == 1 and p % 8 == 7 for p, q in f._PRIMES_DRAWN for s in f._PRIMES if s <= f.SMOOTH)"
    )
    primes = [
        prime
        for _ in range(3)
        for prime in subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    ]
    assert len(set(primes)) == len(primes) == 6
    for prime in (3_897_727_489_335_812_459_716_028_639, *primes):
        assert maths.verify(f"\\boxed{{x^{{{prime}}}}}", {"answer": "x"}).outcome is Outcome.WRONG


def test_who_knows_one_prime_is_not_paid(maths: Verifier) -> None:
    finite_field.Field()
    for prime, _ in finite_field._PRIMES_DRAWN:
        verdict = maths.verify(f"\\boxed{{2^{{{prime}}}x}}", {"answer": "2x"})
        assert verdict.outcome is not Outcome.RIGHT


def test_a_tower_of_powers_takes_no_time(maths: Verifier) -> None:
    began = time.process_time()
    assert maths.verify(f"\\boxed{{5{'**π' * 330}}}", {"answer": "\\sqrt{2}"}).reason == "too_big"
    assert time.process_time() - began < 0.3


def test_no_verdict_depends_on_the_prime(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[Any]] = []
    rows = [json.loads(line) for line in (CASES / "math_own.jsonl").read_text().splitlines()]
    rows = [row for row in rows if any(mark in str(row["response"]) for mark in ("sqrt", "^n", "ln", "sin", "log"))]
    assert len(rows) > 150
    for _ in range(3):
        monkeypatch.setattr(finite_field, "_PRIMES_DRAWN", [])
        finite_field._draw.cache_clear()
        maths = build("math")
        verdicts = []
        for row in rows:
            try:
                verdict = maths.verify(row["response"], {"answer": row["gold"]})
            except BadGold:
                continue
            verdicts.append((row["response"], verdict.outcome, verdict.reason))
        found.append(verdicts)
    finite_field._draw.cache_clear()
    assert found[0] == found[1] == found[2]
