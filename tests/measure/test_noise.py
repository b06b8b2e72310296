"""A scorer's noise: the same answers scored twice, and the floor that it makes."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.rows import Row, Split
from grpo_cli.jobs.probe import run_probe, table
from grpo_cli.measure.probe import ProbeSize
from grpo_cli.measure.probe_result import ScorerNoise, is_noisy, scored_twice
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Outcome, Verdict
from tests.builders.workplaces import Told, tiny_recipe

ROWS = [{"question": f"{i}+1=?", "answer": str(i + 1)} for i in range(6)]
NOISY = """\
import random


def score(completion, answer):
    return 0.5 + random.gauss(0, 0.1)


async def asked(completion, answer):
    return 0.5 + random.gauss(0, 0.1)


def sure(completion, answer):
    return len(completion) / 100
"""


@pytest.mark.parametrize(("group", "factor"), [(4, 1.614), (8, 1.418), (16, 1.291)])
def test_the_floor_is_the_quantile_of_a_deviation_of_noise(group: int, factor: float) -> None:
    assert ScorerNoise(1.0, 64).floor(group) == pytest.approx(factor, abs=5e-4)
    assert ScorerNoise(0.1, 64).floor(group) == pytest.approx(0.1 * factor, abs=5e-5)


@pytest.mark.parametrize("group", [2, 3, 6, 12, 32])
@pytest.mark.parametrize("ddof", [0, 1])
def test_one_group_in_twenty_of_equal_answers_spreads_by_more(group: int, ddof: int) -> None:
    draw, floor = random.Random(group), ScorerNoise(0.3, 64).floor(group, ddof)
    deviation = statistics.stdev if ddof else statistics.pstdev
    more = sum(deviation([draw.gauss(0, 0.3) for _ in range(group)]) > floor for _ in range(4000))
    assert 0.036 < more / 4000 < 0.064


def recipe_of(folder: Path, function: str, **more: Any) -> Any:
    (folder / "noisy.py").write_text(NOISY)
    verify = {"judge": {"kind": "python", "weight": more.pop("weight", 1.0), "options": {"function": function}}}
    return tiny_recipe(folder, ROWS, verify=verify, **more)


@pytest.mark.parametrize("function", ["noisy.py:score", "noisy.py:asked"])
def test_a_probe_scores_the_same_answers_twice(tmp_path: Path, function: str) -> None:
    """Also where what was said of an answer is kept, as it is of asynchronous functions."""
    recipe = recipe_of(tmp_path, function, train={"std_floor": "noise"})
    found = run_probe(recipe, tmp_path, Told().display, ProbeSize(6, 12)).run
    noise = found.probe.noise
    assert noise is not None and noise.n == 64
    assert 0.06 < noise.sigma < 0.14
    # of equal answers hardly any group spreads by more than the noise
    assert found.probe.equal_rewards is not None and found.probe.equal_rewards >= 0.5
    assert found.probe.as_json()["noise"]["floor"] == noise.floor(recipe.sample.group)
    assert any(line.startswith("noise") for line in table(found, "m", 1.0))


def test_the_noise_is_in_units_of_the_reward(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "noisy.py:score", weight=10.0, train={"std_floor": "noise"})
    noise = run_probe(recipe, tmp_path, Told().display, ProbeSize(6, 12)).run.probe.noise
    assert noise is not None and 0.6 < noise.sigma < 1.4


def test_a_scorer_that_is_sure_has_no_noise(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "noisy.py:sure", train={"std_floor": "noise"})
    noise = run_probe(recipe, tmp_path, Told().display, ProbeSize(4, 4)).run.probe.noise
    assert noise is not None and (noise.sigma, noise.n) == (0.0, 16)


def test_only_a_judge_or_a_wish_is_worth_a_second_score(tmp_path: Path) -> None:
    judge = {"kind": "judge", "options": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}
    assert not is_noisy(tiny_recipe(tmp_path, ROWS, verify={"math": {}}))
    assert is_noisy(tiny_recipe(tmp_path, ROWS, verify={"math": {}, "judge": judge}))
    assert not is_noisy(tiny_recipe(tmp_path, ROWS, verify={"math": {}, "judge": judge | {"weight": 0}}))
    assert is_noisy(tiny_recipe(tmp_path, ROWS, verify={"math": {}}, train={"std_floor": "noise"}))


def test_episodes_and_answers_without_a_score_are_not_scored_again(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "noisy.py:score")
    rows = Split([Row("r", "q", "q", {"answer": "1"})], {"judge": [{"answer": "1"}]})
    lost = {"judge": Verdict(Outcome.OVER_LIMIT, 0.0)}
    records = [
        SampleRecord(0, "r", "r", "q", "a", {}, lost, Outcome.OVER_LIMIT, 0.0),
        SampleRecord(0, "r", "r", "q", "a", {}, {"judge": Verdict(Outcome.WRONG, 0.5)}, Outcome.WRONG, 0.5, turns=[{"text": "a"}]),
    ]  # fmt: skip
    assert scored_twice(recipe, tmp_path, rows, records) is None
