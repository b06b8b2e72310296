"""A run with a canary: asked before the first step, every few steps and at the end; a fall pauses it or takes it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.display.choose import make_display
from grpo_cli.errors import DataError, Exit
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.folder import RunFolder
from tests.builders.workplaces import tiny_recipe


def recipe_with(folder: Path, **monitor: Any) -> Recipe:
    (folder / "canary.jsonl").write_text("".join(json.dumps({"question": f"watch {i}"}) + "\n" for i in range(12)))
    canary = {"from": str(folder / "canary.jsonl"), "every": 2, "samples": 2, "drop": 0.05}
    canary |= monitor.pop("canary", {})
    return tiny_recipe(
        folder,
        [{"question": f"say {i}"} for i in range(6)],
        verify={"regex": {"pattern": "[a-m]"}},
        sample={"prompts": 2, "group": 4, "max_tokens": 6},
        train={"steps": 5, "lr": 1e-3},
        monitor={"canary": canary, "kl": "off", **monitor},
        run={"dir": str(folder / "runs"), "name": "r"},
    )


def train(recipe: Recipe, folder: Path, resume: RunFolder | None = None) -> Any:
    return Job(recipe, label="r", base=folder, display=make_display("none")).run(resume)


def test_it_is_asked_at_the_start_every_few_steps_and_at_the_end(tmp_path: Path) -> None:
    result = train(recipe_with(tmp_path), tmp_path)
    run = RunFolder.open(tmp_path / "runs" / "r")
    lines = [m for m in run.metrics() if "canary/pass@1" in m]
    assert [m["step"] for m in lines] == [0, 2, 4, 5]
    assert lines[0]["canary/drop"] == 0
    assert all(m["canary/n"] == 12 for m in lines)
    assert run.steps("canary") == [0, 2, 4, 5]
    assert len(list(run.samples(0, "canary"))) == 24
    assert [m["step"] for m in run.metrics() if "group/count" in m] == [1, 2, 3, 4, 5]
    shares = [m["rows/top_share"] for m in run.metrics() if "group/count" in m]
    assert all(share is None or 0 < share <= 1 for share in shares)
    assert result.code is Exit.OK


def test_a_canary_row_that_is_trained_on_is_refused_before_the_run_has_a_folder(tmp_path: Path) -> None:
    recipe = recipe_with(tmp_path)
    (tmp_path / "canary.jsonl").write_text('{"question": "say 3"}\n')
    with pytest.raises(DataError, match="training row too"):
        train(recipe, tmp_path)
    assert not (tmp_path / "runs" / "r").exists()


@pytest.mark.parametrize("action", ["pause", "roll_back"])
def test_a_fall_pauses_the_run_or_takes_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """The fall is played: from step 2 on no canary sample counts as right."""
    from grpo_cli.findings.held_out import shares_of
    from grpo_cli.jobs.train import measurements

    def fallen(records: Any, verifier: Any, right_at: float) -> Any:
        gone = records[0].step > 0
        return {row: [0.0 if gone else 1.0] * len(of) for row, of in shares_of(records, verifier, right_at).items()}

    monkeypatch.setattr(measurements, "shares_of", fallen)
    result = train(recipe_with(tmp_path, on_alarm={"canary": action}), tmp_path)
    run = RunFolder.open(tmp_path / "runs" / "r")
    assert result.code is Exit.BAR_MISSED
    assert run.manifest()["status"] == ("paused" if action == "pause" else "rolled_back")
    assert run.manifest()["acted"][0]["alarms"][0]["code"] == "W71"
    assert max(m["step"] for m in run.metrics()) == (2 if action == "pause" else 0)
    assert run.alarm_path(2, "W71").is_file()
