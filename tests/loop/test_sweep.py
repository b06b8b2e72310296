"""`grpo sweep` over two seeds of a small recipe: two ordinary runs, a table with an interval, and nothing left for a resume."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.loop.recipes import ROOT, environment, small_recipe


def grpo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grpo_cli", *words],
        cwd=ROOT,
        env=environment(folder / "runs"),
        capture_output=True,
        text=True,
        check=False,
    )


def test_two_seeds_are_two_runs_and_a_table(tmp_path: Path) -> None:
    recipe, runs = small_recipe(tmp_path, steps=2), str(tmp_path / "runs")
    done = grpo(tmp_path, "sweep", str(recipe), "--seeds", "2", "--name", "two", "--dir", runs, "--set", "eval.every=2")
    assert done.returncode == 0, done.stderr
    header, arm = done.stdout.splitlines()
    assert header.split()[:3] == ["arm", "runs", "held-out"]
    assert arm.startswith("as written  2 ") and "2 seeds" in arm
    listed = json.loads(grpo(tmp_path, "runs", "--dir", runs, "--json").stdout)["runs"]
    assert sorted((run["name"], run["status"], run["seed"]) for run in listed) == [
        ("two-s3", "done", 3),
        ("two-s4", "done", 4),
    ]
    again = grpo(tmp_path, "sweep", "--resume", "two", "--dir", runs, "--json")
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    assert [run["code"] for run in found["runs"]] == [None, None]
    assert found["arms"][0]["pass@1"]["n"] == 2
    assert "two-s3  done already" in again.stderr
