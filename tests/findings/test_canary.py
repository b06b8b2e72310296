"""The canary: its drop, its p over all looks, and when the alarm speaks."""

from __future__ import annotations

import random
from typing import Any

import pytest

from grpo_cli.findings.alarms import Alarms
from grpo_cli.findings.held_out import (
    ALPHA_OF_CANARY,
    canary_dropped,
    canary_metrics,
    correction,
    is_doubtful,
    shares_of,
)
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import paired_clustered
from grpo_verifiers.verdict import Outcome, Verdict


def drawn(rate: float, seed: int, prompts: int = 50, samples: int = 4) -> dict[str, list[float]]:
    chance = random.Random(seed)
    return {f"r{i}": [float(chance.random() < rate) for _ in range(samples)] for i in range(prompts)}


@pytest.mark.parametrize(("steps", "every", "expected"), [(40, 10, 4), (41, 10, 5), (3, 10, 1)])
def test_the_last_step_is_a_look_too(steps: int, every: int, expected: int) -> None:
    assert correction(steps, steps, every, []) == 2 * expected


def test_p_is_that_of_the_paired_test_times_the_looks() -> None:
    start, now = drawn(0.9, 1), drawn(0.75, 2)
    one, ten = (canary_metrics(start, now, n, 0.05) for n in (1, 10))
    compared = paired_clustered(list(start.values()), list(now.values()))
    assert one["canary/drop"] == pytest.approx(-compared.difference.mean)
    assert one["canary/p"] == pytest.approx(compared.p_value)
    assert ten["canary/p"] == pytest.approx(10 * compared.p_value)
    assert canary_metrics(start, start, 10, 0.05)["canary/p"] == 1.0


def test_an_alarm_needs_both_a_drop_and_significance() -> None:
    start = drawn(0.9, 1)
    gone = canary_metrics(start, drawn(0.3, 2), 10, 0.05)
    assert "fewer than at the start" in getattr(canary_dropped([gone]), "text", "")
    assert canary_dropped([canary_metrics(start, drawn(0.3, 2), 10, 0.9)]) is None
    assert canary_dropped([canary_metrics(drawn(0.3, 2), start, 10, 0.05)]) is None  # it rose
    few = canary_metrics({"a": [1.0]}, {"a": [0.0]}, 1, 0.05)
    assert few["canary/p"] is None
    assert canary_dropped([few]) is None


def played(seed: int, rate: float, steps: int = 200, every: int = 10) -> list[dict[str, Any]]:
    """The looks of a run whose prompts do not change, those after doubtful drops among them."""
    start, lines = drawn(rate, 1000 * seed), list[dict[str, Any]]()
    for step in range(1, steps + 1):
        if step % every == 0 or (lines and is_doubtful(lines[-1])):
            factor = correction(step, steps, every, lines)
            now = drawn(rate, 1000 * seed + step)
            lines.append({"step": step, **canary_metrics(start, now, factor, 0.05)})
    return lines


def test_healthy_runs_of_many_looks_stay_silent() -> None:
    """200 runs of 20 planned looks and more: at most a few false alarms at 1 % a run."""
    runs = [played(seed, 0.8) for seed in range(200)]
    assert sum(len(lines) > 20 for lines in runs) > 50  # looks in between are taken
    assert sum(any(canary_dropped([line]) for line in lines) for lines in runs) <= 6  # P(7 or more) at 1 % is 0.4 %


def test_all_looks_together_spend_the_chance_of_one_false_alarm() -> None:
    lines: list[dict[str, Any]] = []
    spent = 0.0
    for step in range(1, 101):
        spent += ALPHA_OF_CANARY / correction(step, 100, 10, lines)
        lines.append({"step": step})
    assert 0.98 * ALPHA_OF_CANARY < spent <= ALPHA_OF_CANARY
    assert [correction(step, 100, 10, []) for step in (10, 11, 100)] == [20, 4, 20]
    assert correction(13, 100, 10, [{"step": 0}, {"step": 10}, {"step": 11}, {"step": 12}]) == 24


def test_a_drop_is_doubtful_where_it_is_large_and_not_significant() -> None:
    line = {"canary/drop": 0.1, "canary/p": 0.2, "canary/bar": 0.05}
    assert is_doubtful(line)
    assert not is_doubtful(line | {"canary/p": 0.001})
    assert not is_doubtful(line | {"canary/drop": 0.04})
    assert not is_doubtful(line | {"canary/p": None})


def test_prompts_without_a_verdict_are_left_out_of_the_pair() -> None:
    start = {"a": [1.0, 1.0], "b": [1.0], "c": []}
    found = canary_metrics(start, {"a": [0.0, 1.0], "b": [], "c": [0.0]}, 1, 0.05)
    assert found["canary/n"] == 2
    assert found["canary/drop"] == pytest.approx(0.5)
    assert canary_metrics(start, {}, 1, 0.05)["canary/pass@1"] is None


def test_its_own_verifier_says_what_right_is() -> None:
    own = Verdict(Outcome.RIGHT, 0.7)
    records = [SampleRecord(0, "a", "a", "p", "c", {}, {"own": own}, Outcome.WRONG)]
    assert shares_of(records, None, 1.0) == {"a": [0.0]}
    assert shares_of(records, "own", 0.5) == {"a": [1.0]}
    assert shares_of(records, "own", 1.0) == {"a": [0.0]}
    assert shares_of(records, "other", 1.0) == {"a": []}


def test_the_alarm_is_raised_once_and_recalled_from_the_lines() -> None:
    line = {"step": 10, **canary_metrics(drawn(0.9, 1), drawn(0.3, 2), 10, 0.05)}
    alarms = Alarms()
    (finding,) = alarms.watched(line)
    assert (finding.code, finding.step) == ("W71", 10)
    assert alarms.watched(line | {"step": 20}) == []
    assert [f.code for f in Alarms().recall([line])] == ["W71"]
    assert ALPHA_OF_CANARY == 0.01
