"""`grpo doctor` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def doctor(*args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "verifiers")]), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "grpo_cli", "doctor", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def test_doctor_prints_the_sandbox_table() -> None:
    done = doctor()
    assert done.returncode == 0, done.stderr
    rows = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert "refused / refused" in rows["network"] and "writable / writable" in rows["scratch files"]
    assert "!" not in done.stdout


def test_doctor_json_is_one_object() -> None:
    done = doctor("--json")
    told = json.loads(done.stdout)
    assert told["sandbox"]["tier"] in ("namespaces", "landlock")
    assert told["sandbox"]["tiers"]["landlock"]["checks"]["network"] == {"asked": "refused", "got": "refused"}
    assert told["machine"]["lanes"] >= 1


def test_doctor_names_an_unknown_tier() -> None:
    done = doctor("--least", "docker")
    assert done.returncode == 2 and "--least" in done.stderr and "Traceback" not in done.stderr


def test_doctor_of_a_run_that_is_not_there_says_so() -> None:
    done = doctor("no-such-run")
    assert done.returncode in (2, 3) and done.stderr.startswith("error: ") and "Traceback" not in done.stderr
