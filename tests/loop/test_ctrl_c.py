"""Ctrl-C typed into a terminal, in every phase: exit 130, no traceback, the terminal as it was, nothing half-written."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.loop.recipes import ROOT, environment, small_recipe

CTRL_C = b"\x03"
HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"


class Terminal:
    """A pseudo-terminal with one command in it."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            command, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=environ, cwd=ROOT, preexec_fn=self._own
        )
        self.said = b""

    def _own(self) -> None:
        os.setsid()
        import fcntl

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def read(self, seconds: float) -> None:
        if select.select([self.master], [], [], seconds)[0]:
            self.said += os.read(self.master, 1 << 16)

    def wait_for(self, text: bytes, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert self.process.poll() is None, self.said.decode(errors="replace")
            assert time.monotonic() < deadline, self.said.decode(errors="replace")
            self.read(0.05)

    def finish(self, seconds: float = 120) -> int:
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.said.decode(errors="replace")
            self.read(0.05)
        while select.select([self.master], [], [], 0.1)[0]:
            self.said += os.read(self.master, 1 << 16)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal's modes were not restored"
        return self.process.returncode


def start(tmp_path: Path, display: str, warmup_steps: int = 20) -> Terminal:
    recipe = small_recipe(tmp_path, steps=5000, save_every=100_000)
    recipe.write_text(recipe.read_text().replace("steps: 20", f"steps: {warmup_steps}"))
    command = [sys.executable, "-m", "grpo_cli", "train", str(recipe), "--display", display]
    command += ["--set", f"run.dir={tmp_path}/runs", "--set", "run.name=run"]
    return Terminal(command, environment(tmp_path) | {"TERM": "xterm-256color"})


def check_end(terminal: Terminal) -> str:
    code, said = terminal.finish(), terminal.said
    text = said.decode(errors="replace")
    assert code == 130, text
    assert "Traceback" not in text
    assert said.rfind(SHOW) >= said.rfind(HIDE), "the cursor stays hidden"
    return text


def test_while_libraries_are_imported(tmp_path: Path) -> None:
    terminal = start(tmp_path, "plain")
    time.sleep(1.0)
    os.write(terminal.master, CTRL_C)
    check_end(terminal)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", [("train",), ("eval", "builtin:tiny", "--recipe")])
def test_before_there_is_a_run_to_go_on_with(tmp_path: Path, words: tuple[str, ...]) -> None:
    """No display has begun whose word it would be; the program says it itself."""
    recipe = small_recipe(tmp_path, steps=2)
    command = [sys.executable, "-m", "grpo_cli", *words, str(recipe), "--display", "plain"]
    command += ["--set", f"run.dir={tmp_path}/runs"]
    terminal = Terminal(command, environment(tmp_path) | {"TERM": "xterm-256color"})
    terminal.wait_for(b"load model 0/1")
    os.write(terminal.master, CTRL_C)
    assert check_end(terminal).replace("^C", "").rstrip().endswith("\ninterrupted")
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.parametrize("display", ["live", "plain"])
def test_in_the_warm_up(tmp_path: Path, display: str) -> None:
    terminal = start(tmp_path, display, warmup_steps=100_000)
    terminal.wait_for(b"warm-up")
    os.write(terminal.master, CTRL_C)
    check_end(terminal)


def test_in_training_the_step_is_finished_and_saved(tmp_path: Path) -> None:
    terminal = start(tmp_path, "live")
    samples = tmp_path / "runs/run/samples/step-000002.jsonl"
    while not samples.exists():
        assert terminal.process.poll() is None, terminal.said.decode(errors="replace")
        terminal.read(0.05)
    os.write(terminal.master, CTRL_C)
    text = check_end(terminal)
    assert "grpo train --resume" in text
    assert len(list((tmp_path / "runs/run/checkpoints").glob("step-*"))) == 1


def test_a_second_one_stops_at_once(tmp_path: Path) -> None:
    terminal = start(tmp_path, "plain")
    terminal.wait_for(b"step 2/")
    os.write(terminal.master, CTRL_C)
    time.sleep(0.005)
    os.write(terminal.master, CTRL_C)
    check_end(terminal)


@pytest.mark.parametrize("display", ["live", "plain"])
def test_a_terminal_that_goes_away_lets_the_step_be_finished_and_saved(tmp_path: Path, display: str) -> None:
    terminal = start(tmp_path, display)
    samples = tmp_path / "runs/run/samples/step-000002.jsonl"
    while not samples.exists():
        assert terminal.process.poll() is None, terminal.said.decode(errors="replace")
        terminal.read(0.05)
    os.close(terminal.slave)
    os.close(terminal.master)
    assert terminal.process.wait(timeout=60) == 143
    assert json.loads((tmp_path / "runs/run/run.json").read_text())["status"] == "interrupted"
    assert len(list((tmp_path / "runs/run/checkpoints").glob("step-*"))) == 1
    assert "Traceback" not in (tmp_path / "runs/run/train.log").read_text()
