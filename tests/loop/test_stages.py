"""`stages` as a user runs them: one folder, one axis, each stage from the best of the last, and a resume in any of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.loop.recipes import small_recipe
from tests.loop.test_resume import finish, kill_after, train, what

STAGES = """
stages:
  - name: cold
    train: {method: sft}
    sft: {demonstration: "{blurt}", steps: 12, lr: 3e-3, muon_lr: 0.015, batch: 16}
  - name: rl
  - name: reject
    from: base
    train: {method: sft}
    sft: {data: {from: "run:rl", options: {a_row: 2}}, steps: 3, lr: 1e-3, batch: 8}
  - name: pairs
    from: last
    train: {method: prefer, steps: 2}
    sample: {prompts: 8, group: 8}
    prefer: {batch: 4, length_gap: 0.5}
"""
SETS = ["--set", "run.name=run", "--set", "sample.max_tokens=24", "--set", "eval.every=1"]


def chain(folder: Path) -> Path:
    recipe = small_recipe(folder, steps=3, save_every=1)
    recipe.write_text(recipe.read_text() + STAGES)
    return recipe


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("dies_at", ["stage-2-rl/checkpoints/step-000002", "stage-3-reject/samples", "stage-4-pairs"])
def test_a_chain_killed_in_any_stage_ends_as_the_unbroken_one(tmp_path: Path, dies_at: str) -> None:
    recipe = chain(tmp_path)
    finish(train(recipe, tmp_path / "straight", *SETS))
    at = tmp_path / "broken/run" / dies_at.replace("/samples", "")
    kill_after(train(recipe, tmp_path / "broken", *SETS), at)
    finish(train(recipe, tmp_path / "broken", *SETS, "--resume"))
    straight, broken = tmp_path / "straight/run", tmp_path / "broken/run"
    assert what(straight) == what(broken)
    for stage in sorted(straight.glob("stage-*")):
        weights = sorted(stage.glob("checkpoints/step-*/model.safetensors"))[-1].relative_to(straight)
        assert (straight / weights).read_bytes() == (broken / weights).read_bytes()


def test_a_chain_is_one_axis_of_steps_and_says_each_stage_before_and_after(tmp_path: Path) -> None:
    said = finish(train(chain(tmp_path), tmp_path / "runs", *SETS, "--display", "plain"))
    run = tmp_path / "runs/run"
    manifest = json.loads((run / "run.json").read_text())
    assert [stage["steps"] for stage in manifest["stages"]] == [12, 3, 3, 2] and manifest["steps"] == 20
    for stage in manifest["stages"]:
        assert stage["before"]["n"] == stage["after"]["n"] == 8
        assert stage["before"]["low"] <= stage["before"]["pass@1"] <= stage["before"]["high"]
        assert f"{stage['folder']}  {stage['steps']} steps  held-out pass@1" in said
    steps = [line for line in lines(run) if "loss" in line]
    assert [line["step"] for line in steps if "reward/total/mean" in line] == [13, 14, 15, 19, 20]
    assert [line["stage"] for line in steps] == ["cold"] * 12 + ["rl"] * 3 + ["reject"] * 3 + ["pairs"] * 2
    assert sorted(int(f.stem[5:]) for f in (run / "samples").glob("*.jsonl")) == [13, 14, 15, 19, 20]
    started = [json.loads((s / "run.json").read_text())["recipe"] for s in sorted(run.glob("stage-*"))]
    assert started == ["cold", "rl", "reject", "pairs"]
    assert "from stage-1-cold/step-000012" in said and "stage 3 of 4: reject, from the recipe's model" in said
    assert "stage 4 of 4: pairs, from stage-3-reject/step-000003" in said
    assert list((run / "stage-1-cold/checkpoints/step-000012").glob("optimizer.pt")) == []
