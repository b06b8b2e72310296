"""The live display through a pseudo-terminal: painted in place, others' noise in the log, the terminal given back."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

from grpo_cli.display.terminal import live

ROOT = Path(__file__).parents[3]
SCRIPT = """
import os, sys, warnings
from dataclasses import replace
from tests.builders.display_state import INFO, step_metrics, view
from grpo_cli.display.choose import make_display
from grpo_cli.run.info import Card
display = make_display("auto")
try:
    display.progress("load model")
    warnings.warn("noise before the log")
    display.start(replace(INFO, log=sys.argv[1]))
    os.write(2, b"native noise\\n")
    for step in range(1, 4):
        display.phase("generate", step, 128)
        display.step(step_metrics(step), view("\\x1b[2J[/think]"))
    import time; time.sleep(0.6)
    exec(sys.argv[2])
    display.finish(Card("done", 9.0, (step_metrics(1), step_metrics(3))))
finally:
    display.close()
"""


def through_pty(
    log: Path, action: str, size: tuple[int, int] = (24, 80), **environment: str
) -> tuple[str, list[object], list[object]]:
    """What the terminal got, and its modes before and after."""
    main, child = pty.openpty()
    fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    before = termios.tcgetattr(child)
    environ = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "GRPO_DISPLAY")}
    path = os.pathsep.join(str(ROOT / part) for part in ("", "verifiers"))
    environ |= {
        "TERM": "xterm-256color",
        "PYTHONPATH": path,
        "PYTHONUTF8": "1",
        "COLUMNS": "",
        "LINES": "",
        **environment,
    }
    pid = os.fork()
    if pid == 0:
        os.login_tty(child) if hasattr(os, "login_tty") else _login(child)
        os.execve(sys.executable, [sys.executable, "-c", SCRIPT, str(log), action], environ)
    out = b""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if select.select([main], [], [], 0.1)[0]:
            out += os.read(main, 65536)
        elif os.waitpid(pid, os.WNOHANG)[0]:
            break
    after = termios.tcgetattr(child)
    os.close(child)
    os.close(main)
    return out.decode(errors="replace"), before, after


def _login(fd: int) -> None:
    os.setsid()
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
    for target in (0, 1, 2):
        os.dup2(fd, target)


@pytest.mark.parametrize("action", ["pass", "raise RuntimeError('a bug')", "raise KeyboardInterrupt", "sys.exit(3)"])
def test_the_terminal_is_given_back_however_it_ends(tmp_path: Path, action: str) -> None:
    out, before, after = through_pty(tmp_path / "log", action)
    assert out.count("\x1b[?25l") == 1
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")
    assert after == before
    if "bug" in action:
        assert out.index("a bug") > out.index("\x1b[?25h")


def test_noise_goes_to_the_log_and_frames_are_painted_in_place(tmp_path: Path) -> None:
    log = tmp_path.parent / "log"
    out, _, _ = through_pty(log, "pass")
    assert "noise" not in out
    assert "noise before the log" in log.read_text()
    assert "native noise" in log.read_text()
    other, usual = out.index("\x1b[?1049h"), out.index("\x1b[?1049l")
    assert (out.count("\x1b[?1049h"), out.count("\x1b[?1049l")) == (1, 1)
    assert other < out.index("step 3/500") < usual < out.index(" done  3 steps")
    assert out.count("\x1b[2J") == 1
    assert "␛[2J[/think]" in out
    assert " done  3 steps" in out


def test_no_color_leaves_no_colour_and_still_paints(tmp_path: Path) -> None:
    out, _, _ = through_pty(tmp_path / "log", "pass", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[1-7]m", out)
    assert "\x1b[?25l" in out


def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    out, _, _ = through_pty(tmp_path / "log", "pass", TERM="dumb")
    assert "\x1b" not in out
    assert out.count(" INFO  step ") == 3


def test_a_terminal_without_utf8_gets_ascii(tmp_path: Path) -> None:
    out, _, _ = through_pty(tmp_path / "log", "pass", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert out.isascii()
    assert "- reward ---" in out


def test_a_small_terminal_gets_a_few_lines(tmp_path: Path) -> None:
    out, _, _ = through_pty(tmp_path / "log", "pass", size=(8, 50))
    assert re.search(r"reward +(\x1b\[[0-9;]*m)?0\.219", out)
    assert "─ reward" not in out


def test_an_error_is_said_on_the_usual_screen_too(tmp_path: Path) -> None:
    out, _, _ = through_pty(tmp_path / "log", "display.note('error', 'no disk'); display.note('warn', 'look here')")
    usual = out.index("\x1b[?1049l")
    assert out.index("error: no disk", usual) > usual
    assert out.index("! look here", usual) > usual


def test_a_screen_of_another_size_is_emptied_and_drawn_at_it(tmp_path: Path) -> None:
    grow = (
        "import fcntl, struct, termios; fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 120, 0, 0)) if os.isatty(2) "
        "else fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 120, 0, 0)); time.sleep(1.0)"
    )
    out, _, _ = through_pty(tmp_path / "log", grow)
    assert out.count("\x1b[2J") == 2
    assert "█ right " in out[out.rindex("\x1b[2J") :]
    assert "█ right " not in out[: out.rindex("\x1b[2J")]


def test_ctrl_z_gives_the_terminal_back_and_takes_it_again(tmp_path: Path) -> None:
    stop = (
        "import signal, subprocess; child = subprocess.Popen(['sh', '-c', f'sleep 1; kill -CONT {os.getpid()}']); "
        "os.kill(os.getpid(), signal.SIGTSTP); child.wait()"
    )
    out, before, after = through_pty(tmp_path / "log", stop)
    assert (out.count("\x1b[?1049h"), out.count("\x1b[?1049l")) == (2, 2)
    assert after == before


@pytest.mark.parametrize(
    ("locale", "is_plain"),
    [({"LC_ALL": "C"}, True), ({"LC_ALL": "", "LANG": "C"}, True), ({"LC_ALL": "", "LANG": "POSIX"}, True),
     ({"LC_ALL": "C.UTF-8"}, False), ({"LC_ALL": "", "LANG": "en_US.UTF-8"}, False), ({"LC_ALL": "en_US.UTF-8", "LANG": "C"}, False)],
)  # fmt: skip
def test_the_locale_says_whether_glyphs_are_plain(tmp_path: Path, locale: dict[str, str], is_plain: bool) -> None:
    out, _, _ = through_pty(tmp_path / "log", "pass", **locale)
    assert ("- reward ---" in out, "─ reward" in out) == (is_plain, not is_plain)


@pytest.mark.parametrize(
    ("works", "longest_s", "least", "most"), [(True, 60.0, 2, 4), (False, 60.0, 1, 1), (False, 0.5, 2, 6)]
)
def test_frames_take_their_share_of_what_the_process_computes(
    monkeypatch: pytest.MonkeyPatch, works: bool, longest_s: float, least: int, most: int
) -> None:
    drawn: list[float] = []

    def spin(seconds: float) -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    def costly(*args: object, **options: object) -> list[object]:
        spin(0.01)
        drawn.append(time.monotonic())
        return []

    monkeypatch.setattr(live, "frame_lines", costly)
    monkeypatch.setattr(live, "FRAME_S", 0.02)
    monkeypatch.setattr(live, "SHARE", 0.02)
    monkeypatch.setattr(live, "LONGEST_S", longest_s)
    display = live.LiveDisplay(io.StringIO(), keys=False)
    until = time.monotonic() + 1.5
    for step in range(15):
        display.phase("generate", step, 30)
        if works:
            spin(0.1)
    while not works and time.monotonic() < until:
        display.phase("generate", 1, 30)
        time.sleep(0.05)
    display.close()
    assert least <= len(drawn) <= most  # 1.5 s of computing are three frames of 0.01 s, at a fiftieth
