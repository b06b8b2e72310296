"""A name that is nearly a run's is told by every command, before any library that takes seconds is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.report_runs import make_run

HEAVY = ("torch", "transformers", "datasets", "pyarrow")
COMMANDS = (
    ["eval", "sed-0"],
    ["eval", "builtin:tiny", "--recipe", "quickstart", "--against", "sed-0"],
    ["chat", "sed-0"],
    ["chat", "sed-0", "--row", "1"],
    ["export", "sed-0", "out"],
    ["pairs", "sed-0"],
    ["watch", "sed-0"],
    ["report", "sed-0"],
    ["doctor", "sed-0"],
    ["runs", "show", "sed-0"],
    ["runs", "remove", "sed-0", "--yes"],
    ["train", "--resume", "sed-0"],
    ["train", "quickstart", "--resume", "sed-0"],
)
PROGRAM = """
import sys
from grpo_cli.app import app
from grpo_cli.errors import UserError
try:
    app(args=sys.argv[1:])
except UserError as err:
    print(err.render())
    print("heavy:", *[name for name in %r if name in sys.modules])
"""


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_near_run_is_named_at_once(tmp_path: Path, words: list[str]) -> None:
    make_run(tmp_path / "runs", "seed-0", hostile=False)
    command = [sys.executable, "-c", PROGRAM % (HEAVY,), *words]
    env = os.environ | {"HF_HUB_OFFLINE": "1"}
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env)
    assert found.stderr == ""
    assert "did you mean" in found.stdout
    assert "`seed-0`" in found.stdout
    assert found.stdout.endswith("heavy:\n")


def test_a_name_near_to_none_is_told_the_newest_and_a_folder_inside_a_run_its_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", "seed-0", hostile=False)
    (run.path / "checkpoints").mkdir(exist_ok=True)
    for named, hint in (
        ("elsewhere", "the one written to last is `seed-0`"),
        ("runs/seed-0/checkpoints", "its run is `runs/seed-0`"),
    ):
        command = [sys.executable, "-m", "grpo_cli", "watch", named]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert (found.returncode, found.stdout) == (3, "")
        assert f"hint: {hint}" in found.stderr


@pytest.mark.parametrize(
    "words",
    [["eval", "empty"], ["eval", "empty", "--recipe", "quickstart"], ["chat", "empty"], ["export", "empty", "out"]],
)
def test_a_folder_without_a_model_is_told_at_once(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    command = [sys.executable, "-c", PROGRAM % (HEAVY,), *words]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (found.stderr, found.stdout.splitlines()[0]) == ("", "error: `empty` holds no model")
    assert found.stdout.endswith("heavy:\n")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("run.name=seed-0", "error: the run `runs/seed-0` exists already"),
        ("run.name=a/b", 'error: --set run.name=a/b: "a/b" cannot name a run: it must be one folder name'),
        ("run.dir=file", "error: cannot write to `file`: `"),
    ],
)
def test_a_run_that_cannot_lie_there_is_told_before_a_model_is_loaded(tmp_path: Path, said: str, told: str) -> None:
    make_run(tmp_path / "runs", "seed-0", hostile=False)
    (tmp_path / "file").touch()
    command = [sys.executable, "-c", PROGRAM % (HEAVY,), "train", "quickstart", "--set", said]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert found.stderr == ""
    assert found.stdout.startswith(told)
    assert found.stdout.endswith("heavy:\n")
