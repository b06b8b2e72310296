"""Start `grpo` in forks of processes that have torch and TRL loaded already: a start costs a tenth of a second, not six."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.loop.recipes import ROOT, environment

OUTLIVE_S = 15.0
"""Within this time of a run's end all its processes are gone (a loaded machine takes its time to kill)."""


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit code (minus the signal where one ended it) and what it said."""

    code: int
    said: str
    seconds: float


class Warm:
    """One warm process. `hash_seed` fixes Python's string hashes in all its forks."""

    def __init__(self, cache: Path, hash_seed: int = 0) -> None:
        self.cache, self.count = cache, 0
        self.environ = environment(cache) | {"PYTHONHASHSEED": str(hash_seed)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.builders.warm_server"],
            cwd=ROOT,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def close(self) -> None:
        """End it and its forks."""
        self.process.kill()
        self.process.wait()

    def start(
        self,
        argv: list[str],
        folder: Path,
        *,
        strike: dict[str, Any] | None = None,
        file_bytes: int = 0,
        environ: dict[str, str] | None = None,
        errors: Path | None = None,
    ) -> tuple[int, Path]:
        """Start `grpo ARGV` in a folder; its process id and the file with all it says, but for what goes to `errors`.

        `environ` is set beside the environment that the warm process was started with.
        """
        self.count += 1
        output = self.cache / f"said-{os.getpid()}-{id(self)}-{self.count}.txt"
        output.parent.mkdir(parents=True, exist_ok=True)
        output.touch()  # there before the run has started, for whoever looks at once
        self._tell(
            {
                "argv": argv,
                "folder": str(folder),
                "output": str(output),
                "errors": str(errors or output),
                "environ": {**self.environ, "GRPO_CACHE": str(self.cache), **(environ or {})},
                "strike": strike,
                "file_bytes": file_bytes,
            }
        )
        return int(self._answer()["pid"]), output

    def run(self, argv: list[str], folder: Path, *, kill_when: Callable[[], bool] | None = None, **more: Any) -> Ended:
        """Start, wait (and kill when something is so), and tell how it ended."""
        began = time.monotonic()
        pid, output = self.start(argv, folder, **more)
        if kill_when is not None:
            while not kill_when() and pid in children(self.process.pid):
                time.sleep(0.005)
            os.kill(pid, signal.SIGKILL)
        code = self.wait(pid)
        return Ended(code, output.read_text(errors="replace"), time.monotonic() - began)

    def wait(self, pid: int) -> int:
        """The exit code of a started run, none of whose processes outlived it."""
        self._tell({"wait": pid, "blocks": True})
        code = int(self._answer()["code"])
        deadline = time.monotonic() + OUTLIVE_S
        while left := children(self.process.pid):  # it inherits the orphans of its forks
            assert time.monotonic() < deadline, f"processes outlive the run: {[command(pid) for pid in left]}"
            time.sleep(0.02)
        return code

    def ended(self, pid: int) -> int | None:
        """The exit code of a started run; None while it runs."""
        self._tell({"wait": pid, "blocks": False})
        code = self._answer()["code"]
        return None if code is None else int(code)

    def _tell(self, order: dict[str, Any]) -> None:
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        assert line, "the warm process is gone"
        return dict(json.loads(line))


def children(pid: int) -> list[int]:
    """Processes that this one started and that still run."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:2]
                if int(parent) == pid and state != "Z":
                    found.append(int(name))
    return found


def command(pid: int) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "gone"
