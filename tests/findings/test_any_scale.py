"""Findings on rewards that are not in [0, 1], and on parts of a reward that never move."""

from __future__ import annotations

from typing import Any

from grpo_cli.findings.alarms import Alarms, ConstantParts, alarms_over_run
from grpo_cli.findings.finding import Limits, reward_scale
from grpo_cli.findings.health import findings


def steps(n: int, **values: Any) -> list[dict[str, Any]]:
    return [{"step": i + 1, **{key: v[i] if isinstance(v, list) else v for key, v in values.items()}} for i in range(n)]


def groups(mixed: int, wrong: int, right: int, signal: int) -> dict[str, Any]:
    return {
        "group/count": 8, "group/mixed": mixed, "group/all_wrong": wrong, "group/all_right": right,
        "group/with_signal": signal,
    }  # fmt: skip


def test_no_mixed_group_with_a_signal_is_a_question_of_right_at() -> None:
    (said,) = [f for f in findings(steps(5, **groups(0, 8, 0, 8))) if f.code == "W10"]
    assert "rewards differ" in said.text and "right_at" in said.hint
    (said,) = [f for f in findings(steps(5, **groups(0, 8, 0, 0))) if f.code == "W10"]
    assert "nothing to learn from" in said.text


def test_groups_of_one_kind_that_teach_get_no_advice_on_prompts() -> None:
    found = {f.code: f for f in findings(steps(12, **groups(1, 0, 7, 8)))}
    assert "right_at" in found["W12"].hint
    found = {f.code: f for f in findings(steps(12, **groups(1, 0, 7, 1)))}
    assert found["W12"].hint == "consider harder prompts"


def test_a_part_that_is_constant_from_the_start_is_named() -> None:
    history = steps(12, **{"reward/form/mean": 0.0, "reward/math/mean": [i / 12 for i in range(12)]})
    recipe = {"verify.math.weight": 1.0, "verify.math.primary": True, "verify.form.weight": 0.2}
    found = [f for f in alarms_over_run(history, [], recipe) if f.code == "W45"]
    assert len(found) == 1 and "`form`" in found[0].text and "all 12 steps 0" in found[0].text
    assert not [f for f in alarms_over_run(history[:5], [], recipe) if f.code == "W45"]
    unpaid = recipe | {"verify.form.weight": 0.0}
    assert not [f for f in alarms_over_run(history, [], unpaid) if f.code == "W45"]


def test_steps_of_equal_means_that_hold_right_and_wrong_answers_are_no_constant() -> None:
    recipe = {"verify.form.weight": 0.2}
    counts = {"verify/form/right": 4, "verify/form/calls": 8}
    assert not alarms_over_run(steps(12, **{"reward/form/mean": 0.5}, **counts), [], recipe)
    found = alarms_over_run(steps(12, **{"reward/form/mean": 1.0}, **counts | {"verify/form/right": 8}), [], recipe)
    assert [f.code for f in found] == ["W45"]


def test_equal_means_of_scores_that_differ_are_no_constant() -> None:
    recipe = {"verify.rank.weight": 1.0}
    ranked = {"reward/rank/mean": 0.5, "verify/rank/right": 0, "verify/rank/calls": 8}
    assert not alarms_over_run(steps(12, **ranked, **{"reward/rank/std": 0.3}), [], recipe)
    found = alarms_over_run(steps(12, **ranked, **{"reward/rank/std": 0.0}), [], recipe)
    assert [f.code for f in found] == ["W45"]


def test_a_constant_part_is_said_once_while_the_run_goes_on() -> None:
    constant, said = ConstantParts(["form", "math"]), []
    for metrics in steps(30, **{"reward/form/mean": 0.0, "reward/math/mean": [i / 30 for i in range(30)]}):
        said += constant.step(metrics)
    assert [(f.code, f.step) for f in said] == [("W45", Limits().window)] and "`form`" in said[0].text


def test_a_part_is_full_at_its_right_at() -> None:
    rising = [min(1.0, i / 15) for i in range(60)]
    lines = steps(60, **{"right": 0.2, "group/count": 8, "reward/form/mean": [10 * v for v in rising]})
    codes = lambda parts: {f.code for alarms in [Alarms(parts)] for m in lines for f in alarms.step(m)}  # noqa: E731
    assert "W44" in codes({"form": 10.0})
    half = steps(60, **{"right": 0.2, "group/count": 8, "reward/form/mean": [2 * v for v in rising]})
    assert "W44" not in {f.code for alarms in [Alarms({"form": 10.0})] for m in half for f in alarms.step(m)}


def test_gains_are_measured_on_the_scale_of_the_reward() -> None:
    assert reward_scale(steps(4, **{"reward/std": 0.5})) == 1.0
    assert reward_scale(steps(4, **{"reward/std": 3.0})) == 6.0
    assert Limits().flat_gain == 0.02
