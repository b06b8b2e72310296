"""The monitors of a run: each speaks of what was planted, none of a healthy run, and each once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from grpo_cli.findings.alarms import MONITORS, Alarms, alarms_over_run
from grpo_cli.findings.evidence import EVIDENCE
from grpo_cli.findings.samples import PICKS, split_of
from grpo_cli.jobs.explain.subjects import rules
from tests.builders.simulated_runs import simulate


def raised(history: list[dict[str, Any]], parts: tuple[str, ...] = ("format",)) -> list[tuple[str, int]]:
    alarms = Alarms(parts)
    return [(f.code, f.step) for metrics in history for f in alarms.step(metrics)]


def test_a_healthy_run_raises_no_alarm() -> None:
    assert [raised(simulate(150, seed)) for seed in range(12)] == [[]] * 12


def collapse(step: int, metrics: dict[str, Any]) -> None:
    if step > 40:
        metrics |= {"entropy/sampled": 0.01, "group/all_wrong": 8, "reward/total/mean": 0.3}


def endless(step: int, metrics: dict[str, Any]) -> None:
    metrics["repetition"] = 0.02 if step < 40 else 0.5


def only_format(step: int, metrics: dict[str, Any]) -> None:
    metrics |= {"reward/format/mean": min(1.0, 0.4 + step / 40), "right": 0.2}


def long_winded(step: int, metrics: dict[str, Any]) -> None:
    metrics["right"] = 0.3
    metrics["length/mean"] *= 1 + max(0, step - 40) / 20


@pytest.mark.parametrize(
    ("code", "change"), [("W33", collapse), ("W23", endless), ("W44", only_format), ("W22", long_winded)]
)
def test_each_monitor_speaks_once_of_what_it_watches(code: str, change: Callable[[int, dict[str, Any]], None]) -> None:
    found = [one for one in raised(simulate(120, change=change)) if one[0] == code]
    assert len(found) == 1
    assert 24 < found[0][1] <= 90


def test_low_entropy_of_a_policy_that_has_learned_is_no_alarm() -> None:
    def learned(step: int, metrics: dict[str, Any]) -> None:
        metrics["entropy/sampled"] = 0.5 * 0.9**step

    history = simulate(120, chance=lambda step: min(0.97, 0.2 + step / 50), change=learned)
    assert raised(history) == []


def test_an_alarm_stands_until_its_rule_was_silent_for_a_while() -> None:
    def twice(step: int, metrics: dict[str, Any]) -> None:
        metrics["repetition"] = 0.9 if 30 <= step < 60 or (step >= 62 and step < 80) or step >= 130 else 0.01

    assert [code for code, _ in raised(simulate(160, change=twice))] == ["W23", "W23"]


def test_what_is_recalled_from_the_records_is_not_raised_again() -> None:
    history = simulate(120, change=endless)
    (first,) = (step for code, step in raised(history) if code == "W23")
    resumed = Alarms(["format"])
    resumed.recall(history[:first])
    assert [f.code for m in history[first:] for f in resumed.step(m)] == []


def gap(step: int, wide: bool) -> dict[str, Any]:
    low = 0.3 if wide else 0.0
    return {
        "step": step,
        "eval/pass@1": 0.6,
        "eval/gold/pass@1": 0.2,
        "eval/gold/gap": low + 0.02,
        "eval/gold/gap/low": low,
        "eval/gold/gap/high": low + 0.04,
        "eval/gold/z": 2.0,
    }


def test_the_gold_alarm_comes_from_evaluations() -> None:
    alarms = Alarms()
    said = [alarms.evaluated(gap(step, wide=step >= 20)) for step in range(0, 60, 10)]
    assert [[f.code for f in one] for one in said] == [[], [], ["W70"], [], [], []]
    assert alarms_over_run([], [gap(0, False), gap(8, True)], {})[0].step == 8


@pytest.mark.parametrize(("more", "codes"), [({}, {"W44"}), ({"primary": True}, set()), ({"weight": 0}, set())])
def test_side_rewards_are_the_rewarded_verifiers_beside_the_primary(more: dict[str, Any], codes: set[str]) -> None:
    recipe = {"verify.math.weight": 1.0, "verify.format.weight": 0.1, "train.steps": 3}
    recipe |= {f"verify.format.{key}": value for key, value in more.items()}
    steps = simulate(change=only_format)
    assert {f.code for f in alarms_over_run(steps, [], recipe)} & {"W44"} == codes


def test_every_alarm_has_a_rule_evidence_and_samples() -> None:
    for code in MONITORS:
        assert code in rules()
        assert EVIDENCE[code]
        assert code in PICKS
    assert split_of("W70") == "eval"
