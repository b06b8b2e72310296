"""Looks over whole runs: silent on healthy ones, and each planted fault is found by its code at about its step."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from grpo_cli.findings.health import over_run
from grpo_cli.findings.trends import trends
from tests.builders.simulated_runs import Change, counts, simulate, spread

START = 60
"""The step at which faults are planted."""


def codes(history: list[dict[str, Any]]) -> set[str]:
    return {finding.code for finding in [*over_run(history), *trends(history)]}


def test_sixty_healthy_runs_are_silent() -> None:
    assert [(seed, found) for seed in range(60) if (found := codes(simulate(seed=seed)))] == []


def test_answers_that_grow_while_more_are_right_are_no_hack() -> None:
    assert [s for s in range(20) if codes(simulate(seed=s, longer=2.0)) & {"W22"}] == []


def test_a_smooth_exponential_fall_of_entropy_is_silent() -> None:
    for rate in (8, 20, 60):

        def decay(step: int, metrics: dict[str, Any], rate: int = rate) -> None:
            metrics["entropy"] = 0.7 * math.exp(-step / rate)

        assert [s for s in range(10) if codes(simulate(seed=s, change=decay))] == []


def from_start(**values: Any) -> Change:
    def change(step: int, metrics: dict[str, Any]) -> None:
        if step >= START:
            given = {key.replace("__", "/"): v(step) if callable(v) else v for key, v in values.items()}
            metrics.update(given)

    return change


def groups_at(p: float) -> Change:
    """From the start of the fault on all prompts have this pass rate."""
    rng = random.Random(5)

    def change(step: int, metrics: dict[str, Any]) -> None:
        if step >= START:
            metrics.update(counts([sum(rng.random() < spread(rng, p) for _ in range(8)) for _ in range(16)]))

    return change


def both(*changes: Change) -> Change:
    def change(step: int, metrics: dict[str, Any]) -> None:
        for one in changes:
            one(step, metrics)

    return change


def cancelling(step: int, metrics: dict[str, Any]) -> None:
    """`format` falls by what `math` gains."""
    metrics["reward/format/mean"] = 1.0 - metrics["reward/math/mean"]
    metrics["verify/format/calls"] = 128
    metrics["verify/format/right"] = round(128 * metrics["reward/format/mean"])
    metrics["reward/total/mean"] = 1.0


def shrinking(step: int) -> float:
    return 0.5 * 0.7 ** (step - START)


@pytest.mark.parametrize(
    ("fault", "code", "change"),
    [
        ("dead groups", "W11", groups_at(0.02)),
        ("dead groups", "W10", from_start(group__mixed=0, group__all_wrong=12, group__all_right=4)),
        ("saturation", "W12", groups_at(0.95)),
        ("length hack", "W22", from_start(length__mean=lambda s: 200 * 1.03 ** (s - START))),
        ("entropy collapse", "W30", both(from_start(entropy=shrinking), groups_at(0.3))),
        ("truncation wall", "W20", from_start(truncated=0.4)),
        (
            "kl that grows for nothing",
            "W31",
            from_start(kl=lambda s: 0.05 + 0.01 * (s - START), reward__total__mean=0.5),
        ),
        ("kl blow-up", "W32", from_start(kl=lambda s: 0.05 * 1.4 ** (s - START))),
        ("broken verifier", "W42", groups_at(0.0)),
        ("broken verifier", "W42", groups_at(1.0)),
        ("broken verifier", "W40", from_start(error=0.3)),
        ("cancelling verifiers", "W43", cancelling),
        (
            "lr too high",
            "W52",
            both(
                lambda step, m: (
                    m.update(counts([round(8 * max(0.0, 0.5 - 0.03 * (step - START)))] * 16)) if step >= START else None
                ),
                from_start(grad_norm=9.0, clip__total=0.3),
            ),
        ),
        ("lr too high", "W50", from_start(grad_norm=lambda s: 80.0 if s == START else 0.4)),
    ],
)
def test_a_planted_fault_is_found(fault: str, code: str, change: Change) -> None:
    missed = [seed for seed in range(8) if code not in codes(simulate(seed=seed, change=change))]
    assert missed == [], fault


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_a_broken_verifier_is_found_at_its_step(p: float) -> None:
    (found,) = [f for f in trends(simulate(seed=3, change=groups_at(p))) if f.code == "W42"]
    assert found.step == START and "`math`" in found.text


def test_a_policy_that_falls_apart_over_steps_is_no_broken_verifier() -> None:
    falls = simulate(seed=1, chance=lambda step: 0.5 if step < START else max(0.0, 0.5 - 0.05 * (step - START)))
    assert "W42" not in codes(falls)


def test_a_part_that_rises_alone_cancels_nothing() -> None:
    def rising(step: int, metrics: dict[str, Any]) -> None:
        metrics["reward/format/mean"] = 0.5
        metrics["verify/format/calls"] = 128

    assert "W43" not in codes(simulate(change=rising))


def test_runs_of_no_or_few_steps_find_nothing() -> None:
    assert trends([]) == []
    assert trends(simulate(steps=3)) == []
    assert trends([{"step": step} for step in range(100)]) == []
