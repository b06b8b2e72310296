"""The outcome of an episode as a verdict: what comes with the sample, and what a line of an episode has recorded."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_verifiers import Outcome, build
from grpo_verifiers.kinds.environment import recorded
from grpo_verifiers.verifier import Played, Sample


def verdict(played: Played | None, row: dict[str, Any] | None = None) -> Any:
    made = build("environment", right_at=0.5)
    return made.judge([Sample("n", made.compile(row or {}), played=played)])[0]


@pytest.mark.parametrize(("outcome", "kind"), [(0.5, "right"), (0.4, "wrong"), (-3.0, "wrong"), (7.0, "right")])
def test_any_finite_outcome_is_the_score(outcome: float, kind: str) -> None:
    found = verdict(Played(outcome))
    assert (found.outcome, found.score) == (Outcome(kind), outcome)


def test_no_outcome_is_no_verdict_with_its_reason() -> None:
    found = verdict(Played(None, "timeout", "`step` of `A` took too long"))
    assert (found.outcome, found.score, found.reason) == (Outcome.ERROR, None, "timeout")
    assert found.detail == "`step` of `A` took too long"


def test_a_text_without_an_episode_has_no_verdict() -> None:
    assert verdict(None).reason == "no_episode"
    assert verdict(None, {"verdicts": {"environment": {"score": 1.0}}}).reason == "no_episode"


def test_a_line_of_an_episode_is_judged_by_what_was_recorded() -> None:
    line: dict[str, Any] = {"turns": [{"text": "n"}], "verdicts": {"environment": {"score": 0.25}}}
    assert (verdict(None, line).outcome, verdict(None, line).score) == (Outcome.WRONG, 0.25)
    line["verdicts"]["environment"] = {"score": None, "reason": "timeout", "outcome": "error"}
    assert verdict(None, line).reason == "timeout"
    line["verdicts"]["environment"] = {"score": "NaN"}
    assert verdict(None, line).score is None
    assert verdict(Played(1.0), line).score == 1.0


def test_the_outcome_is_looked_for_under_the_name_of_the_verifier() -> None:
    line: dict[str, Any] = {
        "turns": [{"text": "n"}],
        "verdicts": {"game": {"score": 1.0}, "environment": {"score": 0.0}},
    }
    assert recorded(line, "game") == Played(1.0)
    assert recorded(line) == Played(0.0)
    missing = recorded(line, "world")
    assert missing is not None
    assert (missing.outcome, missing.reason) == (None, "not_recorded")
    assert "`verdicts.world`" in missing.problem


@pytest.mark.parametrize("turns", [None, 3, "n", [], ["n"], {"text": "n"}])
def test_a_column_that_is_called_turns_makes_no_episode(turns: Any) -> None:
    assert recorded({"turns": turns, "verdicts": {"environment": {"score": 1.0}}}) is None
