"""The nearest name is a hint: near ones are found however they are spelled, far ones are not made up."""

from __future__ import annotations

import pytest

from grpo_verifiers.names import did_you_mean, near_or_known, nearest

KNOWN = ["max_tokens", "math", "reasoning_gym"]


@pytest.mark.parametrize(
    ("name", "near"), [("maths", "math"), ("MATH", "math"), ("max-token", "max_tokens"), ("zebra", None), ("", None)]
)
def test_case_and_dashes_do_not_count(name: str, near: str | None) -> None:
    assert nearest(name, KNOWN) == near
    assert did_you_mean(name, KNOWN) == (f"; did you mean `{near}`?" if near else "")


def test_the_likeness_can_be_lowered() -> None:
    assert nearest("run-a", ["1127-run"], 0.6) is None
    assert nearest("run-a", ["1127-run"], 0.4) == "1127-run"


def test_where_nothing_is_near_the_first_names_are_told() -> None:
    assert near_or_known("mth", KNOWN) == "; did you mean `math`?"
    assert near_or_known("zebra", KNOWN, most=2) == "; known: max_tokens, math, …"
    assert near_or_known("zebra", []) == ""
