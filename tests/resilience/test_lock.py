"""A run that another process writes to is refused; the lock goes with its process, whatever becomes of the children."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.errors import UsageError
from grpo_cli.resilience.lock import LOCK, hold

HOLDER = """
import os, sys, time
from pathlib import Path
from grpo_cli.resilience.lock import hold
kept = hold(Path(sys.argv[1]))
if os.fork() == 0:
    time.sleep(3)
    os._exit(0)
print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_run_has_one_writer_and_a_dead_one_is_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        said = holder.stdout.readline().strip()
        try:
            with pytest.raises(UsageError, match=f"process {said} on .* trains in it") as refused:
                hold(tmp_path, patience_s=0.0)
            assert f"grpo watch {tmp_path}" in refused.value.hint
        finally:
            holder.kill()
        holder.wait()
        with hold(tmp_path, patience_s=0.0):  # its forked child still lives
            assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} ")
