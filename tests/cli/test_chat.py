"""`grpo chat` as a command, from a pipe and with a row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROW = ("--recipe", "quickstart", "--set", "warmup=null", "--max-tokens", "6")


def chat(*args: str, cwd: Path, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo_cli", "chat", *args]
    env = os.environ | {"HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, cwd=cwd, input=said, capture_output=True, text=True, timeout=240, env=env)


def test_lines_from_a_pipe_are_turns_and_stdout_holds_answers_only(tmp_path: Path) -> None:
    args = ("builtin:tiny", "--max-tokens", "4", "--seed", "1")
    found = chat(*args, cwd=tmp_path, said="hello\n\n/reset\nhello\n/quit\nnever\n")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.count("(cut at 4 tokens)") == 2
    assert chat(*args, cwd=tmp_path, said="hello\n\n/reset\nhello\n").stdout == found.stdout


def test_a_group_of_one_row_with_its_verdicts(tmp_path: Path) -> None:
    found = chat("builtin:tiny", *ROW, "--row", "2", "--samples", "3", "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    samples = json.loads(found.stdout)["samples"]
    assert len(samples) == 3
    assert len({sample["row"] for sample in samples}) == 1
    assert all(set(sample["verdicts"]) == {"math"} and sample["tokens"] <= 6 for sample in samples)


def test_what_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    asked = chat("builtin:tiny", "--json", cwd=tmp_path)
    assert (asked.returncode, "--json goes with --row N" in asked.stderr) == (2, True)
    gone = chat("builtin:tiny", *ROW, "--row", "99999999", cwd=tmp_path)
    assert gone.returncode != 0
    assert "has rows 1 to" in gone.stderr
    assert "Traceback" not in gone.stderr
