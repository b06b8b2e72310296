"""`grpo explain CODE --json`: the names of its bounds are keys that users read, whatever the limits are called inside."""

from __future__ import annotations

import pytest

from grpo_cli.jobs.explain.subjects import SHOWN_AS, rules
from grpo_cli.jobs.explain.subjects import describe_finding as describe


@pytest.mark.parametrize(
    ("code", "bounds"),
    [
        ("W23", {"window": 10, "repeated": 0.3, "growth": 2.0}),
        ("W32", {"kl": 0.5, "kl_growth": 5.0}),
        ("W33", {"window": 10, "entropy_left": 0.25, "unsolved": 0.25, "gain": 0.02, "flat_steps": 20}),
        ("W44", {"window": 10, "full": 0.95, "rise": 0.1, "flat": 0.05, "flat_steps": 20}),
    ],
)
def test_bounds_keep_the_names_under_which_they_were_first_shown(code: str, bounds: dict[str, float]) -> None:
    assert describe(code)["bounds"] == bounds


def test_no_bound_takes_the_place_of_another() -> None:
    for code, names in SHOWN_AS.items():
        assert code in rules()
        assert len(set(names.values())) == len(names)
        assert set(names.values()) <= describe(code)["bounds"].keys()
