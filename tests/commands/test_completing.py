"""What Tab offers: asked as the shell asks, through the program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpo_cli.app import app
from tests.builders.report_runs import make_run


def offered(line: str) -> list[str]:
    """What bash is given for the last word of a line."""
    words = line.split(" ")
    environ = {"_GRPO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = CliRunner().invoke(app, [], prog_name="grpo", env=os.environ | environ)
    return done.stdout.split("\n")[:-1] if done.stdout.endswith("\n") else done.stdout.split("\n")


def test_recipes_by_name_and_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick.yaml").write_text("")
    (tmp_path / "quick.txt").write_text("")
    assert offered("grpo train qui") == ["quickstart", "quick.yaml"]


def test_runs_the_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("la-old", "la-new"):
        make_run(tmp_path / "runs", name, steps=1, hostile=False)
    assert offered("grpo report la") == ["last", "la-new", "la-old"]
    assert offered("grpo export la-o") == ["la-old"]
    assert offered("grpo watch runs/la-n") == ["runs/la-new"]


def test_keys_and_their_words() -> None:
    assert "train.lr=" in offered("grpo train quickstart --set train.l")
    assert offered("grpo check quickstart --set launch.strategy=fsd") == ["launch.strategy=fsdp2"]


def test_what_explain_knows() -> None:
    assert "W20" in offered("grpo explain W2") and "math" in offered("grpo explain mat")
