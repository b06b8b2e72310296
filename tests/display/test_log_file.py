"""`train.log` never stops a run."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.display.choose import LogFile


def test_a_full_disk_costs_lines_of_the_log_and_nothing_else() -> None:
    log = LogFile("/dev/full")
    log.write("lost\n")
    log.flush()
    log.write("begun")
    log.close()


def test_a_log_that_cannot_be_opened_is_dropped(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path / "missing" / "train.log"))
    log.write("lost\n")
    log.close()


def test_whole_lines_are_there_at_once_and_odd_characters_are_spelled(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path / "train.log"))
    log.write("a \ud800\n")
    assert (tmp_path / "train.log").read_text() == "a \\ud800\n"
    log.close()
