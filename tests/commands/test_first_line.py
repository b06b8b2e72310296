"""The first second of a command that loads a model, in a terminal and out of one."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

LINE = "loading torch, transformers and TRL"
BEGIN = "import sys; from grpo_cli.commands import opening; opening.open_command(sys.argv[1].split()); "


def said_in_terminal(code: str, words: str, cache: Path, **environ: str) -> tuple[int, str]:
    """Exit code and what the terminal got."""
    main, child = pty.openpty()
    given = {**os.environ, "GRPO_CACHE": str(cache), "TERM": "xterm", "GRPO_DISPLAY": "", **environ}
    process = subprocess.Popen([sys.executable, "-c", BEGIN + code, words], stdout=child, stderr=child, env=given)
    os.close(child)
    said = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not select.select([main], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(main, 4096)
        except OSError:
            break
        if not data:
            break
        said += data
    os.close(main)
    return process.wait(), said.decode()


LOAD = "\nwith opening.loading('train'): pass"


def test_the_line_comes_before_anything_is_imported_and_stays_with_its_seconds(tmp_path: Path) -> None:
    code, said = said_in_terminal("assert 'typer' not in sys.modules" + LOAD, "train r.yaml", tmp_path)
    assert code == 0
    assert said.startswith(LINE)
    assert "loaded torch, transformers and TRL in " in said
    assert list(json.loads((tmp_path / "loading.json").read_text())) == ["train"]


def test_the_next_time_says_how_long_the_last_one_took(tmp_path: Path) -> None:
    (tmp_path / "loading.json").write_text('{"train": 9.2}')
    assert said_in_terminal(LOAD, "train r.yaml", tmp_path)[1].startswith(f"{LINE} (last time 9s)")


@pytest.mark.parametrize("kept", ["", "[]", '{"train": "x"}', "\0"])
def test_a_broken_memory_is_as_none(tmp_path: Path, kept: str) -> None:
    (tmp_path / "loading.json").write_text(kept)
    code, said = said_in_terminal(LOAD, "train r.yaml", tmp_path)
    assert code == 0
    assert "last time" not in said
    assert json.loads((tmp_path / "loading.json").read_text())["train"] >= 0


def test_a_memory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert said_in_terminal(LOAD, "train r.yaml", tmp_path / "file")[0] == 0


@pytest.mark.parametrize(
    "words",
    ["check r.yaml", "train --help", "train r.yaml --dry-run", "train r --display json", "eval r --display=none", ""],
)
def test_other_commands_and_programs_hear_nothing(tmp_path: Path, words: str) -> None:
    assert said_in_terminal("", words, tmp_path) == (0, "")


def test_off_a_terminal_nothing_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + LOAD, "train r.yaml"],
        capture_output=True,
        env={**os.environ, "GRPO_CACHE": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_an_error_takes_the_line_back(tmp_path: Path) -> None:
    _, said = said_in_terminal("opening.wipe(); print('error')", "train r.yaml", tmp_path)
    assert said.endswith("\r\x1b[Kerror\r\n")


def test_a_terminal_without_a_cursor_gets_one_whole_line(tmp_path: Path) -> None:
    assert said_in_terminal(LOAD, "train r.yaml", tmp_path, TERM="dumb")[1] == f"{LINE}\r\n"


@pytest.mark.parametrize("words", ["train r.yaml", "check r.yaml"])
def test_ctrl_c_before_the_imports_is_one_line(tmp_path: Path, words: str) -> None:
    code, said = said_in_terminal("import os, signal; os.kill(os.getpid(), signal.SIGINT)", words, tmp_path)
    assert code == 130
    assert said.replace(LINE, "").lstrip("\r\x1b[K") == "interrupted: nothing had begun\r\n"


def test_little_is_imported_before_ctrl_c_is_heard() -> None:
    dear = {"typing", "json", "pathlib", "dataclasses", "re", "typer", "grpo_verifiers", "grpo_cli.errors"}
    code = "import sys; import grpo_cli.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert not dear & set(done.stdout.split())


def test_ctrl_c_is_as_usual_for_a_command_that_loads_nothing() -> None:
    code = "import signal; opening.take_ctrl_c_back(sys.argv[1].split()); print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    for words, usual in (("check r", "True\n"), ("train r", "False\n")):
        done = subprocess.run([sys.executable, "-c", BEGIN + code, words], capture_output=True, text=True)
        assert done.stdout == usual
