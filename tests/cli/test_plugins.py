"""Commands beside a package that brings kinds of verifiers of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.builders.plugin_site import write_plugin_site


def test_the_command_line_knows_kinds_of_packages(tmp_path: Path) -> None:
    write_plugin_site(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}

    def grpo(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "grpo_cli", *args]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment)

    assert "polite" in grpo("explain").stdout and "Right where the word is said" in grpo("explain", "polite").stdout
    line = '{"completion": "yes please"}\n'
    assert grpo("verify", "-", "--verifier", "polite", stdin=line).returncode == 0
    assert "cannot be loaded from `plugin_missing:Thing`" in grpo("schema").stdout
    for args in (("explain", "broken"), ("verify", "-", "--verifier", "broken")):
        done = grpo(*args, stdin=line)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        assert done.stderr.count("cannot be loaded from `plugin_missing:Thing`") == 1, done.stderr
