"""Verdicts into rewards: no verdict is never a number, and each rule does what its name says."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grpo_verifiers.combine import (
    CombineRule,
    NoVerifier,
    PairSums,
    RewardTerm,
    cancelling,
    check_rule,
    combine,
    count_pairs,
    judges_of,
    outcome,
    primary_of,
)
from grpo_verifiers.verdict import Outcome, Verdict, error, no_answer, over_limit, right, wrong

SPECS = {"math": RewardTerm(1.0, primary=True), "format": RewardTerm(0.1)}


def test_the_reward_is_the_weighted_sum() -> None:
    assert combine({"math": right(), "format": wrong(score=0.5)}, SPECS) == pytest.approx(1.05)


def test_shaping_is_added() -> None:
    assert combine({"math": wrong(), "format": wrong()}, SPECS, {"overlong": -0.5}) == -0.5


def test_an_error_leaves_no_reward() -> None:
    assert combine({"math": right(), "format": error("down")}, SPECS) is None


def test_a_sample_that_nothing_judged_has_no_reward() -> None:
    assert combine({}, SPECS) is None


def test_an_error_of_a_weightless_verifier_costs_nothing() -> None:
    assert combine({"math": right(), "watch": error("down")}, {**SPECS, "watch": RewardTerm(0.0)}) == 1.0


def test_over_limit_counts_as_zero() -> None:
    assert combine({"math": over_limit("timeout"), "format": right()}, SPECS) == pytest.approx(0.1)


def test_a_reward_that_is_not_finite_names_its_term() -> None:
    with pytest.raises(ValueError, match="`overlong` is nan"):
        combine({"math": right()}, SPECS, {"overlong": math.nan})


def test_the_primary_says_what_right_means() -> None:
    assert primary_of(SPECS) == "math"
    assert primary_of({"a": RewardTerm(), "b": RewardTerm()}) == "a"
    assert outcome({"math": wrong(), "format": right()}, SPECS) is Outcome.WRONG


def test_right_at_moves_the_bar_both_ways() -> None:
    assert outcome({"a": wrong(score=0.6)}, {"a": RewardTerm(right_at=0.5)}) is Outcome.RIGHT
    assert outcome({"a": right(score=0.6)}, {"a": RewardTerm(right_at=0.9)}) is Outcome.WRONG
    assert outcome({"a": over_limit("x")}, {"a": RewardTerm(right_at=0.5)}) is Outcome.OVER_LIMIT
    assert outcome({"a": error("x")}, {"a": RewardTerm()}) is Outcome.ERROR


def test_gate_needs_right_pays_format_only_to_right_answers() -> None:
    rule = CombineRule("gate", {"format": "needs_right"})
    assert combine({"math": wrong(), "format": right()}, SPECS, None, rule) == 0.0
    assert combine({"math": right(), "format": right()}, SPECS, None, rule) == pytest.approx(1.1)


def test_gate_must_pass_takes_everything_away() -> None:
    rule = CombineRule("gate", {"format": "must_pass"})
    assert combine({"math": right(), "format": wrong()}, SPECS, None, rule) == 0.0


def test_first_takes_the_first_that_found_an_answer() -> None:
    specs = {"a": RewardTerm(1.0), "b": RewardTerm(0.5)}
    assert combine({"a": no_answer("none"), "b": right()}, specs, None, CombineRule("first")) == 0.5
    assert combine({"a": wrong(), "b": right()}, specs, None, CombineRule("first")) == 0.0


def test_min_takes_the_lowest_score() -> None:
    specs = {"a": RewardTerm(1.0), "b": RewardTerm(1.0)}
    assert combine({"a": right(), "b": wrong(score=0.25)}, specs, None, CombineRule("min")) == 0.5


def test_by_takes_the_verifier_the_row_names() -> None:
    rule = CombineRule("by", by="kind")
    assert judges_of({"kind": "format"}, SPECS, rule) == ["format"]
    assert outcome({"format": right()}, SPECS) is Outcome.RIGHT
    for row in ({}, {"kind": "fromat"}, {"kind": 3}):
        with pytest.raises(NoVerifier):
            judges_of(row, SPECS, rule)


@pytest.mark.parametrize(
    ("rule", "specs", "says"),
    [
        (CombineRule("gate", {"fromat": "needs_right"}), SPECS, "names `fromat`"),
        (CombineRule("gate", {"format": "maybe"}), SPECS, "is `maybe`"),
        (CombineRule("gate"), SPECS, "names no verifier"),
        (CombineRule("by"), SPECS, "names no column"),
        (CombineRule(), {"a": RewardTerm(1.0), "b": RewardTerm(-1.0)}, "sum to 0"),
        (CombineRule(), {"a": RewardTerm(0.0)}, "all weights are 0"),
        (CombineRule(), {"a": RewardTerm(primary=True), "b": RewardTerm(primary=True)}, "more than one"),
    ],
)
def test_rules_that_cannot_be_meant_are_named(rule: CombineRule, specs: dict[str, RewardTerm], says: str) -> None:
    assert any(says in mistake for mistake in check_rule(rule, specs))


def test_verifiers_that_cancel_are_found() -> None:
    specs = {"a": RewardTerm(1.0), "b": RewardTerm(1.0), "c": RewardTerm(1.0)}
    samples = [{"a": wrong(score=i % 2), "b": wrong(score=1 - i % 2), "c": wrong(score=i % 3 / 2)} for i in range(12)]
    alike = [{"a": wrong(), "b": wrong(), "c": wrong()}] * 12
    for batch, found in ((samples, 1), (alike, 0)):
        sums: dict[tuple[str, str], PairSums] = {}
        for verdicts in batch:
            count_pairs(sums, verdicts)
        assert len(cancelling(sums, specs)) == found


def test_verdict_type_is_what_combine_reads() -> None:
    assert combine({"math": Verdict(Outcome.RIGHT, 1.0)}, {"math": RewardTerm()}) == 1.0


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"source": "gsm8k"}, ["math"]),
        ({"source": 2}, ["code"]),
        ({"source": "else"}, ["exact"]),
        ({"source": None}, ["exact"]),
        ({}, ["exact"]),
        ({"source": "math"}, ["exact"]),
    ],
)
def test_a_map_says_which_verifier_a_value_means_and_a_default_the_rest(row: dict[str, Any], named: list[str]) -> None:
    specs = {"math": RewardTerm(), "code": RewardTerm(), "exact": RewardTerm()}
    rule = CombineRule("by", by="source", values={"gsm8k": "math", "2": "code"}, default="exact")
    assert judges_of(row, specs, rule) == named
    if named == ["exact"]:
        with pytest.raises(NoVerifier):
            judges_of(row, specs, CombineRule("by", by="source", values=rule.values))


def test_a_default_without_a_map_takes_rows_that_name_no_verifier() -> None:
    rule = CombineRule("by", by="source", default="math")
    assert judges_of({"source": "code"}, {"math": RewardTerm(), "code": RewardTerm()}, rule) == ["code"]
    assert judges_of({"source": "x"}, {"math": RewardTerm(), "code": RewardTerm()}, rule) == ["math"]
