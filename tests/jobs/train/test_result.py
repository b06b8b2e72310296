"""`--resume` of a run that is over answers from its folder: no torch, the end card, the summary, the way on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpo_cli.app import app
from grpo_cli.jobs.train.result import result_of
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.run.folder import RunFolder
from tests.builders.checkpoints import empty_checkpoint
from tests.builders.display_state import step_metrics

EVAL = {"eval/pass@1": 0.25, "eval/pass@1/low": 0.2, "eval/pass@1/high": 0.3, "eval/n": 8, "eval/think": 0.0}


def finished(folder: Path, **manifest: object) -> RunFolder:
    """The quickstart as two steps, done and measured."""
    run = folder / "run"
    empty_checkpoint(run / "checkpoints" / "step-000002", 2)
    recipe = load("quickstart", ["train.steps=2", f"run.dir={folder}"])
    (run / "recipe.yaml").write_text(to_yaml(recipe))
    (run / "run.json").write_text(json.dumps({"status": "done", "steps": 2, **manifest}))
    lines = [{"step": 0, **EVAL}, *map(step_metrics, (1, 2)), {"step": 2, **EVAL}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RunFolder.open(run)


def recipe_of(run: RunFolder, *sets: str) -> object:
    return load(str(run.path / "recipe.yaml"), list(sets))


def test_a_finished_run_is_what_it_came_to(tmp_path: Path) -> None:
    run = finished(tmp_path)
    found = result_of(run, recipe_of(run))  # type: ignore[arg-type]
    assert found is not None
    assert (found.steps, found.status, int(found.code)) == (2, "done", 0)
    assert found.before is not None and found.before["step"] == 0
    assert found.after is not None and found.after["step"] == 2
    assert found.checkpoint == run.path / "checkpoints" / "step-000002"


@pytest.mark.parametrize(
    ("manifest", "sets"),
    [
        ({"status": "interrupted"}, ()),
        ({"status": "stopped"}, ()),
        ({"steps": None}, ()),
        ({}, ("train.steps=3",)),
        ({}, ("train.lr=1e-9",)),
    ],
)
def test_a_run_that_goes_on_is_not_over(tmp_path: Path, manifest: dict[str, object], sets: tuple[str, ...]) -> None:
    run = finished(tmp_path, **manifest)
    assert result_of(run, recipe_of(run, *sets)) is None  # type: ignore[arg-type]


def test_a_bar_that_was_missed_is_missed_again(tmp_path: Path) -> None:
    run = finished(tmp_path, reason="reward fell")
    found = result_of(run, recipe_of(run))  # type: ignore[arg-type]
    assert found is not None and int(found.code) == 1


@pytest.mark.parametrize("by", ["name", "recipe"])
def test_the_command_answers_without_torch(tmp_path: Path, by: str) -> None:
    run = finished(tmp_path)
    words = ["--resume", str(run.path)] if by == "name" else [str(run.path / "recipe.yaml"), "--resume"]
    code = (
        "import sys; from grpo_cli.app import main; sys.argv = ['grpo', 'train', '--json', *sys.argv[1:]]\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["status"], said["steps"], said["after"]["pass@1"]) == ("done", 2, 0.25)
    assert "done  2 steps" in done.stderr
    assert "--set train.steps=N" in done.stderr


def test_a_run_whose_last_weights_are_lost_or_damaged_goes_on_from_older_ones(tmp_path: Path) -> None:
    run = finished(tmp_path)
    last = run.checkpoint_path(2)
    (last / "manifest.json").write_text(json.dumps({"step": 2, "files": {"model.safetensors": [5, "0" * 64]}}))
    (last / "model.safetensors").write_bytes(b"other")
    assert result_of(run, recipe_of(run)) is None  # type: ignore[arg-type]
    last.rename(run.checkpoint_path(1))
    assert result_of(run, recipe_of(run)) is None  # type: ignore[arg-type]


def test_a_run_without_checkpoints_is_still_what_it_came_to(tmp_path: Path) -> None:
    run = finished(tmp_path)
    shutil.rmtree(run.path / "checkpoints")
    found = result_of(run, recipe_of(run))  # type: ignore[arg-type]
    assert found is not None and found.checkpoint is None


@pytest.mark.parametrize("dies", ["before the page", "with half of it", "with that of fewer steps"])
def test_a_report_that_death_prevented_is_written_when_the_run_is_found_over(tmp_path: Path, dies: str) -> None:
    run = finished(tmp_path)
    page = run.path / "report.html"
    if dies == "with half of it":
        (run.path / ".report.html.new").write_text("<html>")
    if dies == "with that of fewer steps":
        page.write_text("<html>old")
        os.utime(page, (1e9, 1e9))
    done = CliRunner().invoke(app, ["train", "--resume", str(run.path), "--display", "plain"])
    assert done.exit_code == 0, done.output
    assert "held-out pass@1" in page.read_text() and str(page) in done.stderr
    written = page.stat().st_mtime_ns
    assert CliRunner().invoke(app, ["train", "--resume", str(run.path), "--json"]).exit_code == 0
    assert page.stat().st_mtime_ns == written  # once is enough
    assert [p.name for p in run.path.glob(".report*")] == []


def test_a_report_that_nobody_asked_for_is_not_written_either(tmp_path: Path) -> None:
    run = finished(tmp_path)
    text = (run.path / "recipe.yaml").read_text().replace("report: true", "report: false")
    (run.path / "recipe.yaml").write_text(text)
    assert CliRunner().invoke(app, ["train", "--resume", str(run.path)]).exit_code == 0
    assert not (run.path / "report.html").exists()
