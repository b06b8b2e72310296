"""Programs as they are started: what they see, how they end, and what a score of the user's returns."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.environments.harness import Harness
from grpo_cli.environments.pool import Fault
from grpo_cli.errors import RecipeError

SCORES = """\
import time


def good(row, folder, transcript):
    return len(transcript) + row["add"]


def none(row, folder, transcript):
    return None


def text(row, folder, transcript):
    return "9"


def raises(row, folder, transcript):
    raise KeyError("no\\nsuch")


def hangs(row, folder, transcript):
    while True:
        pass


def two(row, folder):
    return 0.0
"""


def run(tmp_path: Path, code: str, **options: Any) -> Any:
    (tmp_path / "agent.py").write_text(code)
    harness = Harness("python agent.py", ["a"], base=tmp_path, **options)
    harness.start()
    running = harness.launch({"a": "é", "b": 1}, {"OPENAI_API_KEY": "key"}, tmp_path / "root")
    end = time.monotonic() + 20
    while not running.is_over():
        assert time.monotonic() < end
        time.sleep(0.01)
    running.kill()
    return running


def test_it_reads_what_it_is_given_and_its_last_line_counts(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SOME_TOKEN", "x")
    monkeypatch.setenv("MY_API_KEY", "y")
    monkeypatch.setenv("PLAIN", "z")
    code = (
        "import json, os, sys\nprint(json.load(sys.stdin)['a'])\n"
        "print([os.environ.get(n) for n in ('SOME_TOKEN', 'MY_API_KEY', 'PLAIN', 'OPENAI_API_KEY')], os.listdir())\n\n"
    )
    found = run(tmp_path, code, env=["MY_API_KEY"])
    assert found.last_line() == "[None, 'y', 'z', 'key'] []"
    assert (found.root / "out").read_text().splitlines()[0] == "é"


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])\nprint(p.pid)"
    child = int(run(tmp_path, code).last_line())
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
                return
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail(f"process {child} is still there")


@pytest.mark.parametrize(
    ("code", "reason"),
    [("import time\ntime.sleep(99)", "harness_timeout"), ("while True: print('x' * 100000)", "harness_printed")],
)
def test_one_that_takes_or_prints_too_much_is_killed(tmp_path: Path, code: str, reason: str) -> None:
    found = run(tmp_path, code, episode_s=1.5)
    assert found.fault is not None and found.fault.reason == reason
    assert found.process.returncode is not None


def test_a_program_or_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no program `no-such-agent`"):
        Harness("no-such-agent --fast").start()
    with pytest.raises(RecipeError, match="names the column `a`, which r:3 does not have"):
        Harness("python", ["a"]).passed({"b": 1}, "r:3")
    made = Harness("python -c 1", ["a"])
    made.start()
    assert made.command == [os.path.abspath(sys.executable), "-c", "1"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("good", 8.0),
        ("none", None),
        ("text", ("bad_return", "returned a str as the score")),
        ("raises", ("score_raised", "raised KeyError")),
        ("hangs", ("score_failed", "took longer than `environment.timeout_s`")),
    ],
)
def test_a_score_is_a_number_or_no_verdict(tmp_path: Path, name: str, wanted: Any) -> None:
    (tmp_path / "s.py").write_text(SCORES)
    harness = Harness("python", score=f"s.py:{name}", base=tmp_path, timeout_s=1.0)
    harness.start()
    try:
        (found,) = harness.score([({"add": 3}, tmp_path, "12345")])
    finally:
        harness.close()
    if isinstance(wanted, tuple):
        assert isinstance(found, Fault) and found.reason == wanted[0] and wanted[1] in found.text
    else:
        assert found == wanted


@pytest.mark.parametrize(("name", "said"), [("two", "cannot be called as"), ("gone", "gone"), ("x.y", "x")])
def test_a_score_that_cannot_be_called_is_refused_at_the_start(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "s.py").write_text(SCORES)
    with pytest.raises(RecipeError, match=said):
        Harness("python", score=f"s.py:{name}", base=tmp_path).start()
