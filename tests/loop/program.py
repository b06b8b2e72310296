"""`grpo` as its users run it: in forks of two warm processes by turns, whose string hashes differ, or started for itself."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any

from tests.builders.warm import Warm
from tests.loop.recipes import ROOT, environment

LIMIT_S = 240.0


class Program:
    """A fork of a warm process, by the names of `subprocess.Popen`."""

    def __init__(self, warm: Warm, args: list[str], cwd: Path, environ: dict[str, str], *, apart: bool) -> None:
        self.warm, self.args = warm, args
        self.errors = warm.cache / f"errors-{next(_NUMBERS)}.txt" if apart else None
        self.returncode: int | None = None
        self.pid, self.output = warm.start(args, cwd, environ=environ, errors=self.errors)

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        if self.returncode is None:
            self.returncode = self.warm.ended(self.pid)
        return self.returncode

    def wait(self, timeout: float = LIMIT_S) -> int:
        """The exit code at its end; one that takes longer is killed, and the test fails."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                self.send_signal(signal.SIGKILL)
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.02)
        return code

    def communicate(self, timeout: float = LIMIT_S) -> tuple[str, str]:
        """What it said until its end, and what it said on stderr where that is apart."""
        self.wait(timeout)
        errors = "" if self.errors is None else self.errors.read_text(errors="replace")
        return self.output.read_text(errors="replace"), errors

    def send_signal(self, number: int) -> None:
        """Sent to this process alone, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


_NUMBERS = count()
_STARTS = count()


@cache
def _warm(hash_seed: int) -> Warm:
    folder = tempfile.TemporaryDirectory(prefix="grpo-warm-")
    warm = Warm(Path(folder.name), hash_seed)
    atexit.register(folder.cleanup)
    atexit.register(warm.close)
    return warm


def start(args: list[str], folder: Path, cwd: Path = ROOT, *, apart: bool = False, cold: bool = False) -> Any:
    """Start `grpo ARGS` with the environment of `folder`; stderr goes where stdout goes unless `apart`.

    `cold` starts an interpreter for it, as a shell does: seconds of imports, and hashes by chance.
    """
    if not cold:
        return Program(_warm(next(_STARTS) % 2), args, cwd, environment(folder), apart=apart)
    errors: int | IO[bytes] = subprocess.PIPE if apart else subprocess.STDOUT
    command = [sys.executable, "-m", "grpo_cli", *args]
    return subprocess.Popen(command, cwd=cwd, env=environment(folder), stdout=subprocess.PIPE, stderr=errors, text=True)


def grpo(
    folder: Path, *args: str, cwd: Path = ROOT, cold: bool = False, timeout: float = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """`grpo ARGS` to its end."""
    program = start(list(args), folder, cwd, apart=True, cold=cold)
    out, errors = program.communicate(timeout=timeout)
    return subprocess.CompletedProcess(list(args), program.returncode, out, errors)
