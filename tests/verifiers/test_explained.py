"""What is recorded of a verdict: both readings and the rules, the same verdict as without it, and no trace left behind."""

from __future__ import annotations

import sys

import pytest

from grpo_verifiers import Sample, build
from grpo_verifiers.explained import judge_and_explain
from grpo_verifiers.registry import KINDS, kind_class

HERE = ["math", "numeric", "exact", "set", "choice", "equation", "regex", "format", "json", "instructions"]


@pytest.mark.parametrize("kind", HERE)
def test_the_verdict_is_the_same_and_comes_with_readings_and_rules(kind: str) -> None:
    assert kind in KINDS
    seen = 0
    for example in kind_class(kind).examples():
        verifier = build(kind, **(example.options or {}))
        sample = Sample(example.completion, verifier.compile(example.row))
        (plain,) = verifier.judge([sample])
        verdict, explained = judge_and_explain(verifier, sample)
        assert (verdict.outcome, verdict.reason, verdict.answer) == (plain.outcome, plain.reason, plain.answer)
        assert set(explained) == {"gold", "answer", "rules"}
        assert explained["rules"][0].startswith(verdict.reason)
        assert explained["gold"]
        verifier.close()
        seen += 1
    assert seen
    assert sys.getprofile() is None


def explained(gold: str, answer: str) -> dict[str, object]:
    verifier = build("math")
    return judge_and_explain(verifier, Sample(f"\\boxed{{{answer}}}", verifier.compile({"answer": gold})))[1]


@pytest.mark.parametrize(
    ("gold", "answer", "readings", "rule"),
    [
        ("(3,\\infty)", "x > 3", ("(3, inf())", "x > 3"), "realsets.same_regions"),
        ("5 cm", "5 m", ("unit(5, cm)", "unit(5, m)"), "units.units_agree"),
        ("1,2", "2,1", ("[1, 2]", "[2, 1]"), "lists.unordered"),
        ("\\sin 2x", "2\\sin x\\cos x", ("f(sin, (2 * x))", "((2 * f(sin, x)) * f(cos, x))"), "scalars.same_scalar"),
        ("5", "3 +", ("5", "unread(3 +: an operator without its right side)"), "unread"),
    ],
)
def test_maths_shows_both_trees_and_the_rule(gold: str, answer: str, readings: tuple[str, str], rule: str) -> None:
    found = explained(gold, answer)
    assert (found["gold"], found["answer"]) == readings
    assert any(rule in one for one in found["rules"])  # type: ignore[attr-defined]


def test_what_was_judged_before_is_explained_as_well() -> None:
    verifier = build("math")
    sample = Sample("\\boxed{2,1}", verifier.compile({"answer": "1,2"}))
    verifier.judge([sample])
    assert any("lists.unordered" in rule for rule in judge_and_explain(verifier, sample)[1]["rules"])
