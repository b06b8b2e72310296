"""Pipes in the place of a run's files, links that lead back to themselves, and brackets without end: none is waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_cli.display.choose import LogFile
from grpo_cli.errors import DataError
from grpo_cli.jobs.init import read_config
from grpo_cli.resilience.checkpoint import MANIFEST, STATE, find_fault, read_state
from grpo_cli.run.folder import RunFolder
from grpo_cli.text import real_path


def test_a_manifest_that_is_a_pipe_is_no_manifest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MANIFEST)
    assert find_fault(tmp_path) == "no readable manifest"


def test_a_run_or_a_state_that_is_a_pipe_cannot_be_read(tmp_path: Path) -> None:
    for name in ("run.json", STATE):
        os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="a pipe or a device"):
        RunFolder(tmp_path).manifest()
    with pytest.raises(DataError, match="a pipe or a device"):
        read_state(tmp_path)


def test_a_log_that_is_a_pipe_takes_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.log")
    with LogFile(str(tmp_path / "train.log")) as log:
        log.write("a line\n")


def test_a_configuration_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    with pytest.raises(DataError, match="nested too deep"):
        read_config(tmp_path / "deep.yaml")


def test_a_link_that_leads_back_to_itself_stays(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert real_path(tmp_path / "loop") == real_path(tmp_path) / "loop"
