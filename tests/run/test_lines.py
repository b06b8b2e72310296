"""Files of ours: who may read them, what is refused before work begins, and what is kept when a name is taken again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from grpo_cli.errors import SetupError
from grpo_cli.run import lines


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_files_follow_the_umask_those_of_libraries_too(tmp_path: Path, umask: int, expected: int) -> None:
    before = os.umask(umask)
    try:
        lines.replace(tmp_path / "ours.json", "{}")
        lines.append(tmp_path / "lines.jsonl", "{}\n")
    finally:
        os.umask(before)
    closed = tmp_path / "model.safetensors"
    closed.touch()
    closed.chmod(0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    lines.open_as(tmp_path / "ours.json", tmp_path)
    assert {mode(tmp_path / name) for name in ("ours.json", "lines.jsonl", "model.safetensors")} == {expected}
    assert mode(tmp_path / "folder") == 0o700


def test_bits_that_a_file_has_are_never_taken(tmp_path: Path) -> None:
    (tmp_path / "ours").touch()
    (tmp_path / "ours").chmod(0o600)
    (tmp_path / "tool").touch()
    (tmp_path / "tool").chmod(0o755)
    lines.open_as(tmp_path / "ours", tmp_path)
    assert mode(tmp_path / "tool") == 0o755


def test_a_name_that_is_taken_is_freed_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "eval.greedy.jsonl"
    assert lines.set_aside(path) is None
    for text in "abc":
        lines.set_aside(path)
        path.write_text(text)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "eval.greedy.jsonl": "c",
        "eval.greedy-1.jsonl": "a",
        "eval.greedy-2.jsonl": "b",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_closed_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SetupError, match="permission denied"):
            lines.refuse_unwritable(tmp_path / "a.jsonl")
        with pytest.raises(SetupError, match="permission denied"):
            lines.refuse_closed(tmp_path / "a" / "b")
    finally:
        tmp_path.chmod(0o700)


def test_what_can_hold_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"there is no folder .*gone"):
        lines.refuse_unwritable(tmp_path / "gone" / "a.jsonl")
    with pytest.raises(SetupError, match="it is a folder"):
        lines.refuse_unwritable(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="is a file"):
        lines.refuse_closed(tmp_path / "file" / "model")
    lines.refuse_unwritable(tmp_path / "a.jsonl")
    lines.refuse_closed(tmp_path / "not" / "yet")


def test_pipes_devices_and_links_stay_what_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    lines.refuse_unwritable(pipe)
    lines.replace(pipe, ["one\n", "two\n"])
    assert os.read(reader, 100) == b"one\ntwo\n"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    lines.refuse_unwritable(Path(os.devnull))
    lines.replace(Path(os.devnull), "gone\n")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    lines.replace(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"
