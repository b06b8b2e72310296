"""Prefix reuse in whole runs: what it saves is counted, several ranks keep what one keeps, and what cannot work is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.loop.recipes import small_recipe
from tests.loop.test_resume import finish, train

REUSE = ("--set", "sample.reuse={lenience: 1.3}", "--set", "data.train.limit=8", "--set", "run.name=run")


def steps_of(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "reward/total/mean" in line]


def samples_of(run: Path, step: int) -> list[tuple[str, str, int]]:
    lines = (run / f"samples/step-{step:06d}.jsonl").read_text().splitlines()
    return [(s["row"], s["completion"], s["tokens"]) for s in map(json.loads, lines)]


def test_kept_tokens_are_counted_and_not_drawn(tmp_path: Path) -> None:
    finish(train(small_recipe(tmp_path, steps=4), tmp_path, *REUSE))
    steps = steps_of(tmp_path / "run")
    assert [s["reuse/tokens"] > 0 for s in steps] == [False, False, True, True]  # two steps are one epoch
    for number, s in enumerate(steps, 1):
        tokens = sum(tokens for _, _, tokens in samples_of(tmp_path / "run", number))
        assert s["tokens/drawn"] == pytest.approx(tokens * (1 - s["reuse/tokens"]))
        assert 0 <= s["reuse/whole"] <= s["reuse/tokens"] * 3
    assert any(s["reuse/whole"] > 0 for s in steps)


def test_two_ranks_keep_what_one_keeps(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=6)
    # 3 prompts a step over two ranks and 8 rows: a row comes back on the other rank
    more = (*REUSE, "--set", "sample.prompts=3", "--set", "train.lr=1e-5", "--set", "train.dead_groups=keep")
    finish(train(recipe, tmp_path / "one", *more))
    finish(train(recipe, tmp_path / "two", *more, "--set", "launch.cpu_ranks=2"))
    for step in range(1, 7):
        assert samples_of(tmp_path / "one/run", step) == samples_of(tmp_path / "two/run", step)
    for a, b in zip(steps_of(tmp_path / "one/run"), steps_of(tmp_path / "two/run"), strict=True):
        assert a["reuse/tokens"] == b["reuse/tokens"]
    assert steps_of(tmp_path / "two/run")[-1]["reuse/whole"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("more", ["train.select=screen", "train.dead_groups=resample", "train.select=priority"])  # fmt: skip
def test_it_works_with_every_way_of_drawing(tmp_path: Path, more: str) -> None:
    finish(train(small_recipe(tmp_path, steps=4), tmp_path, *REUSE, "--set", more))
    assert steps_of(tmp_path / "run")[-1]["reuse/tokens"] > 0


def test_a_single_pass_is_told_that_nothing_can_be_reused(tmp_path: Path) -> None:
    said = finish(train(small_recipe(tmp_path, steps=1), tmp_path, *REUSE))
    assert "`sample.reuse` never acts: none of 8 rows is drawn twice" in said
