"""`grpo runs` as a command: what stands on which stream, and the exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.builders.report_runs import make_run


def grpo(*args: str, cwd: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo_cli", "runs", *args]
    return subprocess.run(command, cwd=cwd, input=stdin or "", capture_output=True, text=True, timeout=120)


def test_listing_showing_comparing_and_removing(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path / "runs", f"seed-{seed}", seed=seed, hostile=False)
    found = grpo("--json", cwd=tmp_path)
    assert found.returncode == 0
    assert {run["name"] for run in json.loads(found.stdout)["runs"]} == {"seed-0", "seed-1"}
    shown = json.loads(grpo("show", "seed-1", "--json", cwd=tmp_path).stdout)
    assert (shown["run"]["name"], len(shown["evaluations"])) == ("seed-1", 5)
    beside = json.loads(grpo("compare", "seed-0", "seed-1", "--json", cwd=tmp_path).stdout)
    assert beside["others"][0]["recipe"] == {"train.seed": {"first": 0, "this": 1}}
    asked = grpo("remove", "seed-0", cwd=tmp_path)
    assert asked.returncode == 2
    assert "say --yes" in asked.stderr
    assert (tmp_path / "runs" / "seed-0").exists()
    gone = grpo("remove", "seed-0", "--yes", cwd=tmp_path)
    assert (gone.returncode, (tmp_path / "runs" / "seed-0").exists()) == (0, False)
    assert "deleted, " in gone.stdout


def test_nothing_there_is_no_error_and_a_wrong_name_is(tmp_path: Path) -> None:
    none = grpo(cwd=tmp_path)
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "no run under `runs`\n")
    make_run(tmp_path / "runs", "seed-0", hostile=False)
    wrong = grpo("show", "sed-0", cwd=tmp_path)
    assert wrong.returncode != 0
    assert "did you mean `seed-0`?" in wrong.stderr
    twice = grpo("compare", "seed-0", "seed-0", cwd=tmp_path)
    assert (twice.returncode, "two different runs" in twice.stderr) == (2, True)
    last = grpo("remove", "last", "--yes", cwd=tmp_path)
    assert (last.returncode, (tmp_path / "runs" / "seed-0").exists()) == (2, True)
