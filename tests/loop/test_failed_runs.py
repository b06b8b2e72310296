"""A run that fails says why in its own folder too, and how to go on where something was saved."""

from __future__ import annotations

import json
from pathlib import Path

from tests.loop.program import grpo
from tests.loop.recipes import small_recipe
from tests.loop.test_resume import train


def run_with(folder: Path, function: str, *sets: str, resume: bool = False) -> tuple[int, str, Path]:
    recipe = small_recipe(folder)
    text = recipe.read_text().replace('regex: {pattern: "[02468].*[13579]"}', "python: reward.py:score")
    recipe.write_text(text)
    (folder / "reward.py").write_text(function)
    asked = ["--resume", "run"] if resume else ["--set", "run.name=run"]
    done = grpo(folder, "train", str(recipe), "--set", f"run.dir={folder}/runs", *asked, *sets)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr, folder / "runs/run"


def test_a_verifier_that_judges_nothing_ends_the_run_at_its_first_evaluation(tmp_path: Path) -> None:
    code, said, run = run_with(tmp_path, "def score(completion, answer):\n    return float('nan')\n")
    assert code == 5
    assert "no held-out sample got a verdict: `python`: bad_return: BadReturn: `score` (" in said
    assert "reward.py:1) returned nan" in said
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["status"] == "failed" and "returned nan" in manifest["reason"]
    assert "returned nan" in (run / "train.log").read_text()
    assert (run / "eval/step-000000.jsonl").exists()
    assert not (run / "metrics.jsonl").exists()


BREAKS = """
import pathlib

broken = pathlib.Path(__file__).with_name("broken")


def score(completion, answer):
    if broken.exists():
        raise OSError("the table is gone")
    return len(completion) % 2 == 0
"""


def test_a_verifier_that_breaks_later_leaves_a_checkpoint_from_which_the_printed_command_goes_on(
    tmp_path: Path,
) -> None:
    steps = ("--set", "train.steps=4", "--set", "eval.every=1", "--set", "run.save_every=1")
    code, _, run = run_with(tmp_path, BREAKS, *steps, "--set", "run.deadline=0s")
    assert code == 143
    (tmp_path / "broken").touch()
    code, said, run = run_with(tmp_path, BREAKS, *steps, "--resume-anyway", resume=True)
    assert code == 5
    assert "`python`: verifier_raised: OSError: the table is gone" in said
    assert f"is saved; with the cause mended `grpo train --resume {run}` goes on from it" in said


def test_a_run_whose_output_nobody_reads_any_more_goes_on_to_its_end(tmp_path: Path) -> None:
    process = train(small_recipe(tmp_path), tmp_path / "runs", "--set", "run.name=run", cold=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=240) == 0
    manifest = json.loads((tmp_path / "runs/run/run.json").read_text())
    assert (manifest["status"], manifest["steps"]) == ("done", 4)
