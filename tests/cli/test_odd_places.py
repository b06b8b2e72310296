"""Locales without UTF-8, odd names of folders, a home that is closed and a current folder that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loop.recipes import ROOT, environment
from tests.loop.test_paths import write_project


def grpo_in(cwd: Path, *args: str, before: str = "", **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = f'{before} exec {sys.executable} -m grpo_cli "$@"'
    given = environment(cwd.parent) | environ
    return subprocess.run(["sh", "-c", command, "sh", *args], cwd=cwd, env=given, capture_output=True, check=False)


@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}, {"LANG": "de_DE", "LC_ALL": ""}])
def test_any_locale_and_any_name_of_a_folder(locale: dict[str, str], tmp_path: Path) -> None:
    project = write_project(tmp_path / "é mit\nzeile")
    here = tmp_path / "here"
    here.mkdir()
    sets = ["--set", f"run.dir={tmp_path}/runs", "--set", "run.name=x", "--set", "run.deadline=0s"]
    run = str(tmp_path / "runs/x")
    words = [
        (143, ["train", str(project / "small.yaml"), *sets]),
        (0, ["eval", run]),
        (0, ["report", run]),
        (0, ["runs", "--dir", str(tmp_path / "runs")]),
        (0, ["verify", f"{run}/samples/step-000001.jsonl", "--recipe", str(project / "small.yaml")]),
    ]
    for code, args in words:
        done = grpo_in(here, *args, PYTHONUTF8="0", **locale)
        assert done.returncode == code, (args, done.stderr.decode(errors="replace"))
        assert b"Traceback" not in done.stderr


def test_a_recipe_names_files_beyond_ascii_in_the_locale_c(tmp_path: Path) -> None:
    project = write_project(tmp_path / "proj")
    (project / "small.yaml").rename(project / "réc.yaml")
    (project / "data/rows.jsonl").rename(project / "data/zeilé.jsonl")
    text = (project / "réc.yaml").read_text().replace("rows.jsonl", "zeilé.jsonl")
    (project / "réc.yaml").write_text(text)
    for before in ("", "export PYTHONUTF8=0;"):
        done = grpo_in(project, "check", "réc.yaml", before=before, LC_ALL="C")
        assert b"rows train   20 rows" in done.stdout and b"fail" not in done.stdout, done.stdout + done.stderr
    done = grpo_in(project, "chat", "modél", PYTHONUTF8="0", LC_ALL="C")
    assert done.returncode == 4 and b"is not here" in done.stderr and b"Traceback" not in done.stderr
    done = grpo_in(project, "check", "réc.yaml", PYTHONUTF8="0", LC_ALL="C")
    assert done.stdout.isascii(), "the streams keep the locale's encoding"


def test_a_current_folder_that_is_gone_is_no_traceback(tmp_path: Path) -> None:
    project = write_project(tmp_path / "proj")
    gone = tmp_path / "gone"
    for args in (["runs"], ["check", str(project / "small.yaml")], ["train", str(project / "small.yaml")]):
        gone.mkdir()
        done = grpo_in(
            gone, *args, before=f"rmdir {gone};", PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "verifiers")])
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        assert done.returncode in (0, 1, 2, 3, 4)


@pytest.mark.parametrize("name", ["afile", "afile/below"])
def test_a_home_and_caches_that_cannot_be_written_stop_no_command(name: str, tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    project = write_project(tmp_path / "proj")
    closed = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME"), str(tmp_path / name))
    sets = ["--set", f"run.dir={tmp_path}/runs", "--set", "run.name=x", "--set", "train.steps=1"]
    train = ["train", str(project / "small.yaml"), *sets]
    for args in ([*train, "--dry-run"], train, ["eval", f"{tmp_path}/runs/x"], ["export", f"{tmp_path}/runs/x", "out"]):
        done = grpo_in(tmp_path, *args, GRPO_CACHE="", **closed)
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        assert done.returncode in (0, 1) and (args is not train or done.returncode == 0), done.stderr.decode()
