"""Health notes: silent on healthy runs, and each planted trouble is named by its code."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from grpo_cli.findings.health import Health, findings, over_run

Change = Callable[[int, dict[str, Any]], None]


def run(steps: int = 120, seed: int = 0, change: Change = lambda step, metrics: None) -> list[dict[str, Any]]:
    """A run that learns: reward up with noise, entropy down smoothly, most groups mixed."""
    rng = random.Random(seed)
    history = []
    for step in range(1, steps + 1):
        done = 1 - math.exp(-step / 60)
        wrong, right = (
            round(16 * max(0.0, 0.4 - 0.4 * done) * rng.uniform(0.5, 1.5)),
            round(16 * 0.18 * done * rng.uniform(0.5, 1.5)),
        )
        metrics: dict[str, Any] = {
            "step": step, "reward/total/mean": 0.2 + 0.6 * done + rng.gauss(0, 0.02), "group/count": 16, "group/all_wrong": wrong,
            "group/all_right": right, "group/mixed": 16 - wrong - right, "truncated": abs(rng.gauss(0.02, 0.01)),
            "length/right": 200 + 40 * done + rng.gauss(0, 8), "entropy": 0.7 * math.exp(-step / 40) * rng.uniform(0.95, 1.05),
            "kl": 0.02 * done * rng.uniform(0.8, 1.2), "error": 0.0, "over_limit": 0.0, "time/verify": 1.0, "time/generate": 9.0,
            "grad_norm": math.exp(rng.gauss(-1, 0.4)), "loss": rng.gauss(0, 0.02),
        }  # fmt: skip
        change(step, metrics)
        history.append(metrics)
    return history


def codes(history: list[dict[str, Any]]) -> set[str]:
    return {finding.code for finding in over_run(history)}


def alike(share: float, **more: float) -> Change:
    """Groups of eight of which a share is one wrong text."""
    texts = {"group/one_text": share, "group/distinct": 8 - 6 * share, "group/size": 8}
    return lambda _, metrics: metrics.update(texts | more)


def test_groups_of_one_text_are_named_before_what_follows_from_them() -> None:
    hard = {"group/mixed": 1, "group/all_wrong": 31, "group/count": 32, "rows/top_share": 0.3}
    ill = run(steps=40, change=alike(0.48, **hard))
    found = over_run(ill)
    assert [(f.code, f.step) for f in found if f.code == "W35"] == [("W35", 3)]
    assert "48% of the groups are one wrong text 8 times, 5.1 different texts" in found[0].text
    assert {"W10", "W11", "W31", "W61"}.isdisjoint(f.code for f in found)
    assert "W35" not in codes(run(steps=40, change=alike(0.14)))
    assert {"W11", "W61"} <= codes(run(steps=40, change=alike(0.0, **hard)))


def test_sixty_healthy_runs_are_silent() -> None:
    assert [seed for seed in range(60) if codes(run(seed=seed))] == []


def test_a_smooth_fall_of_entropy_beside_a_rising_reward_is_silent() -> None:
    def fast(step: int, metrics: dict[str, Any]) -> None:
        metrics["entropy"] = 0.5 * math.exp(-step / 8)
        metrics["reward/total/mean"] = 0.1 + 0.85 * (1 - math.exp(-step / 6))

    assert codes(run(steps=25, change=fast)) == set()


def saturating(step: int, metrics: dict[str, Any]) -> None:
    """Nearly everything is learned in ten steps; then the groups are all right."""
    metrics["right"] = 0.95 - 0.8 * math.exp(-step / 4)
    metrics["group/all_right"] = round(16 * metrics["right"] ** 8)
    metrics["group/all_wrong"], metrics["group/mixed"] = 0, 16 - metrics["group/all_right"]


def test_groups_that_the_run_itself_made_all_right_are_a_finding_once_nothing_is_gained_any_more() -> None:
    assert codes(run(steps=40, change=saturating)) == set()
    (found,) = over_run(run(steps=80, change=saturating))
    assert found.code == "W12"
    assert 40 < found.step <= 50


def test_rows_that_were_easy_from_the_start_are_a_finding_at_once() -> None:
    easy = after(0, group__all_right=6, right=0.8)
    (found,) = over_run(run(steps=30, change=easy))
    assert (found.code, found.step) == ("W12", 10)


def after(start: int, **values: Any) -> Change:
    def change(step: int, metrics: dict[str, Any]) -> None:
        if step >= start:
            metrics.update(
                {key.replace("__", "/"): value(step) if callable(value) else value for key, value in values.items()}
            )

    return change


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("W10", after(60, group__mixed=0, group__all_wrong=8, group__all_right=8)),
        ("W11", after(60, group__all_wrong=9)),
        ("W12", after(60, group__all_right=6)),
        ("W20", after(60, truncated=0.3)),
        (
            "W21",
            after(
                60,
                length__right=lambda s: max(20, 240 - 4 * (s - 60)),
                reward__total__mean=lambda s: 0.6 - 0.005 * (s - 60),
            ),
        ),
        ("W30", after(30, entropy=0.01, reward__total__mean=0.4)),
        ("W31", after(60, kl=lambda s: 0.02 * 1.1 ** (s - 60), reward__total__mean=0.5)),
        ("W40", after(60, error=0.05)),
        ("W40", after(60, over_limit=0.05)),
        ("W41", after(60, time__verify=20.0)),
        ("W46", after(60, env__invalid=0.4)),
        ("W47", after(40, credit__milestone_without_success=lambda s: min(0.9, 0.3 + 0.02 * (s - 40)))),
        ("W47", after(60, env__milestones=1.0, env__milestones_again=0.5)),
        ("W47", after(0, env__milestones=lambda s: min(0.9, 0.01 * s), right=0.2)),
        ("W48", after(0, credit__anchor_share=0.1)),
        ("W48", after(60, credit__milestone_1__reached=0.0)),
        ("W49", after(60, verify__code__reason__untrusted_objects=0.3)),
        ("W50", lambda step, m: m.update(grad_norm=50.0) if step == 70 else None),
        ("W51", lambda step, m: m.update(loss=math.nan) if step == 70 else None),
    ],
)
def test_a_planted_trouble_is_found(code: str, change: Change) -> None:
    assert code in codes(run(change=change))


@pytest.mark.parametrize(
    "change",
    [
        after(0, env__milestones=lambda s: min(0.9, 0.01 * s), right=lambda s: min(0.8, 0.008 * s)),
        after(0, env__milestones=0.9, env__milestones_again=0.0, right=0.2),
        after(0, env__milestones=2.0, env__milestones_again=0.2, right=0.2),
        after(0, env__milestones=lambda s: min(4.0, 0.05 * s), right=0.97),
        after(60, env__milestones=1.0, right=0.2),
        after(0, credit__milestone_without_success=0.9),
        lambda step, m: m.update({"env/milestones_again": 1.0}) if step % 10 == 0 else None,
    ],
    ids=[
        "success rises too",
        "as ever",
        "seldom again",
        "all right",
        "from an older version",
        "at first too",
        "now and then",
    ],
)
def test_milestones_that_are_not_farmed_are_silent(change: Change) -> None:
    assert "W47" not in codes(run(change=change))


def test_farmed_milestones_say_which_way() -> None:
    texts = {
        finding.text
        for change in (
            after(60, env__milestones=1.0, env__milestones_again=0.5),
            after(0, env__milestones=lambda s: 0.1 if s < 60 else 0.8, right=0.2),
        )
        for finding in over_run(run(change=change))
        if finding.code == "W47"
    }
    assert any("of the milestones in 10 steps had been reached in the same episode before" in t for t in texts)
    assert "episodes reach 0.45 milestones, 0.1 30 steps ago, and 20% are right, 20% then" in texts


def test_a_lasting_trouble_is_said_again_after_fifty_steps_only() -> None:
    said = [f.step for f in over_run(run(steps=170, change=after(1, truncated=0.5))) if f.code == "W20"]
    assert said == [10, 60, 110, 160]


def test_metrics_that_were_never_measured_find_nothing() -> None:
    assert over_run([{"step": step} for step in range(100)]) == []
    assert findings([]) == []


def test_a_long_run_keeps_a_bounded_history_with_its_start() -> None:
    health = Health()
    for metrics in run(steps=400):
        health.step(metrics)
    assert len(health._history) <= 121
    assert health._history[0]["step"] == 1


def test_one_row_that_leads_a_run_is_said_once_it_has_gone_on() -> None:
    from grpo_cli.findings.finding import Limits
    from grpo_cli.findings.health import one_row_leads

    found = one_row_leads([{"step": 40, "rows/top_share": 1.0}], Limits())
    assert found is not None
    assert (found.code, found.step) == ("W61", 40)
    assert "100% of all that was learned from in 40 steps" in found.text
    for line in ({"step": 39, "rows/top_share": 1.0}, {"step": 40, "rows/top_share": 0.05}, {"step": 40}):
        assert one_row_leads([line], Limits()) is None
    assert one_row_leads([], Limits()) is None


def with_critic(explained: float, warmup: int = 5, right: float = 0.4) -> Change:
    def change(step: int, metrics: dict[str, Any]) -> None:
        metrics |= {"critic/explained_variance": explained, "critic/warmup": float(step <= warmup)}
        metrics |= {"right": right, "value/mean": 0.1, "return/mean": 0.3, "critic/loss": 0.1}

    return change


def test_a_critic_that_explains_nothing_is_named_as_its_warm_up_ends() -> None:
    found = [f for f in over_run(run(steps=40, change=with_critic(-0.2))) if f.code == "W34"]
    assert [f.step for f in found] == [6]
    assert "-0.20 of the variance of the returns at the end of its warm-up" in found[0].text
    assert "W34" not in codes(run(steps=40, change=with_critic(0.3)))
    without = [f for f in over_run(run(steps=40, change=with_critic(-0.2, warmup=0))) if f.code == "W34"]
    assert [f.step for f in without] == [10] and "over 10 steps" in without[0].text


def test_where_nearly_all_answers_are_right_there_is_nothing_to_explain() -> None:
    assert "W34" not in codes(run(steps=40, change=with_critic(-0.01, right=0.95)))
    assert "W34" not in codes(run(steps=40, change=with_critic(-0.01, right=0.02)))
