"""`train.alive_by` and `train.std_floor: noise` through whole runs: one process, two, and one that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.loop.recipes import small_recipe
from tests.loop.test_ranks import TWO, samples
from tests.loop.test_resume import finish, train, what

NEVER = ("--set", "verify.regex.pattern=never in any text")
SHORT = (
    *("--set", "verify.regex.primary=true"),
    *("--set", "verify.short={kind: regex, pattern: '[a-m]', weight: 0.1}"),
    *("--set", "train.overlong=0.9"),
    *("--set", "monitor.kl=off"),
)
ONE = ("--set", "run.name=run")


def lines(run: Path) -> list[dict[str, Any]]:
    return [m for m in what(run)["metrics"] if "group/count" in m]


def test_wrong_answers_train_on_their_form_by_reward_alone(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=3, save_every=3)
    out = finish(train(recipe, tmp_path / "gated", *ONE, *NEVER, *SHORT))
    assert "trains on" not in out
    gated = tmp_path / "gated/run"
    assert [m["group/with_signal"] for m in lines(gated)] == [0, 0, 0]
    assert not any("shape/alone" in m for m in lines(gated))
    drawn = samples(gated, 1)
    assert {line["outcome_reward"] for line in drawn} == {0.0}
    assert len({line["reward"] for line in drawn}) > 1
    assert not any(line["advantage"] for line in drawn)
    out = finish(train(recipe, tmp_path / "alone", *ONE, *NEVER, *SHORT, "--set", "train.alive_by=reward"))
    for name in ("short", "overlong"):
        assert f"an all-wrong group trains on `{name}` alone, at full size whatever its weight" in out
    alone = lines(tmp_path / "alone/run")
    assert [m["shape/alone"] for m in alone] == [1.0] * 3
    assert all(m["group/with_signal"] for m in alone)
    log = (tmp_path / "alone/run/train.log").read_text()
    assert "came from groups whose outcomes are equal" in log


def test_two_processes_gate_as_one_does(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=2, save_every=2)
    finish(train(recipe, tmp_path / "one", *ONE, *SHORT))
    finish(train(recipe, tmp_path / "two", *TWO, *SHORT))
    one, two = tmp_path / "one/run", tmp_path / "two/run"
    for step in (1, 2):
        for a, b in zip(samples(one, step), samples(two, step), strict=True):
            assert (a["completion"], a["reward"], a["outcome_reward"]) == (
                b["completion"],
                b["reward"],
                b["outcome_reward"],
            )
            assert a["advantage"] == pytest.approx(b["advantage"], abs=1e-6)
    keys = ("shape/alone", "group/inverted", "group/near_tie", "group/with_signal")
    for a, b in zip(lines(one), lines(two), strict=True):
        assert {k: a[k] for k in keys if k in a} == pytest.approx({k: b[k] for k in keys if k in b}, abs=1e-6)
    assert any("group/inverted" in m for m in lines(one))


def test_the_noise_of_a_scorer_is_measured_once_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import random\n\n\ndef score(completion):\n    return 0.5 + random.gauss(0, 0.1)\n"
    )
    recipe = small_recipe(tmp_path, steps=2, save_every=2)
    said = (
        *("--set", "verify={regex: {weight: 0}, judge: {kind: python, function: 'noisy.py:score', primary: true}}"),
        *("--set", "train.std_floor=noise"),
        *("--set", "monitor.kl=off"),
    )
    out = finish(train(recipe, tmp_path / "runs", *ONE, *said))
    run = tmp_path / "runs/run"
    noise = json.loads((run / "run.json").read_text())["noise"]
    assert noise["n"] == 64 and 0.06 < noise["sigma"] < 0.14
    assert noise["floor"] == pytest.approx(1.614 * noise["sigma"], rel=1e-3)
    assert "has a deviation of" in out
    # answers of equal worth: nearly all groups tie within the noise, and teach nothing
    ties = [m["group/near_tie"] for m in lines(run)]
    assert sum(ties) / len(ties) >= 0.5
    assert [m["group/with_signal"] for m in lines(run)] == [round(4 * (1 - tie)) for tie in ties]
    again = finish(train(recipe, tmp_path / "runs", *ONE, *said, "--set", "train.steps=3", "--resume", str(run)))
    assert "has a deviation of" not in again
    assert json.loads((run / "run.json").read_text())["noise"] == noise
    assert len(lines(run)) == 3
