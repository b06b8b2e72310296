"""Keys typed at the process that has the terminal reach another one through a pipe; the terminal gets its modes back."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from grpo_cli.display.terminal.keys import PIPE, KeyReader, relayed_keys

PARENT = """
import sys, time
from pathlib import Path
from grpo_cli.display.terminal.keys import relayed_keys
place = Path(sys.argv[1])
with relayed_keys(place):
    print("ready", flush=True)
    while not (place / "over").exists():
        time.sleep(0.02)
"""


def until(what: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def test_keys_reach_the_rank_in_order_and_modes_come_back(tmp_path: Path) -> None:
    main, child = pty.openpty()
    before = termios.tcgetattr(child)
    script = f"import os, fcntl, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{PARENT}"
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=child, stdout=subprocess.PIPE, env=os.environ
    )
    assert parent.stdout is not None and parent.stdout.readline() == b"ready\n"
    assert termios.tcgetattr(child) == before, "nothing is read before a frame is drawn"
    pressed: list[str] = []
    keys = KeyReader(pressed.append, str(tmp_path))
    assert keys.open()
    until(lambda: termios.tcgetattr(child) != before)
    os.write(main, b"p\x1b[An")
    until(lambda: len(pressed) == 3)
    assert pressed == ["p", "up", "n"]
    keys.close()
    keys.close()
    (tmp_path / "over").touch()
    assert parent.wait(20) == 0
    assert termios.tcgetattr(child) == before


def test_a_rank_whose_parent_has_no_terminal_has_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", (tmp_path / "none").open("w"))
    with relayed_keys(tmp_path):
        assert not (tmp_path / PIPE).exists()
        assert not KeyReader(print, str(tmp_path)).open()
