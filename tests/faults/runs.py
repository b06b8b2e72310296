"""Start runs in forks of warm processes, and say whether two runs recorded and learned the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.inject import children
from tests.loop.recipes import ROOT, environment
from tests.loop.test_resume import what

LEARNED = ("model.safetensors", "adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "grpo.json")
"""Files of a checkpoint that hold state of the run, none of them a time."""


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
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.server"],
            cwd=ROOT,
            env=environment(cache) | {"PYTHONHASHSEED": str(hash_seed)},
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
    ) -> tuple[int, Path]:
        """Start `grpo ARGV` in a folder; its process id and the file with all it says."""
        self.count += 1
        output = self.cache / f"said-{os.getpid()}-{id(self)}-{self.count}.txt"
        output.parent.mkdir(parents=True, exist_ok=True)
        output.touch()  # there before the run has started, for whoever looks at once
        self._tell(
            {
                "argv": argv,
                "folder": str(folder),
                "output": str(output),
                "environ": {"GRPO_CACHE": str(self.cache), **(environ or {})},
                "strike": strike,
                "file_bytes": file_bytes,
            }
        )
        return int(self._answer()["pid"]), output

    def run(
        self, argv: list[str], folder: Path, *, kill_when: Callable[[], bool] | None = None, **more: Any
    ) -> Ended:
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
        self._tell({"wait": pid})
        code = int(self._answer()["code"])
        deadline = time.monotonic() + OUTLIVE_S
        while left := children(self.process.pid):  # it inherits the orphans of its forks
            assert time.monotonic() < deadline, f"processes outlive the run: {[command(pid) for pid in left]}"
            time.sleep(0.02)
        return code

    def _tell(self, order: dict[str, Any]) -> None:
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        assert line, "the warm process is gone"
        return dict(json.loads(line))


def command(pid: int) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "gone"


def train(recipe: Path, runs: Path, *more: str) -> list[str]:
    """Arguments of a run named `run` in the folder `runs`."""
    return [
        "train",
        str(recipe),
        "--display",
        "plain",
        "--set",
        f"run.dir={runs}",
        "--set",
        "run.name=run",
        *more,
    ]


def lines_of(run: Path) -> Counter[str]:
    """Every whole line of metrics and samples that a run holds, live or abandoned, as canonical text."""
    found: Counter[str] = Counter()
    files = [*run.glob("metrics.jsonl*"), *run.glob("samples/*.jsonl*"), *run.glob("eval/*.jsonl*")]
    for file in files:
        kind = "metrics" if file.parent == run else file.parent.name
        for raw in file.read_bytes().split(b"\n")[:-1]:
            found[f"{kind} {json.dumps(json.loads(raw), sort_keys=True)}"] += 1
    return found


def assert_nothing_lost(before: Counter[str], run: Path) -> None:
    """What was recorded is still there, where it was or set aside."""
    lost = before - lines_of(run)
    assert not lost, f"{sum(lost.values())} recorded lines are gone, the first: {next(iter(lost))[:300]}"


def assert_same(straight: Path, broken: Path) -> None:
    """Equal records but for times, and equal bytes of the last checkpoint's state."""
    a, b = what(straight), what(broken)
    assert a["metrics"] == b["metrics"]
    assert a["samples"] == b["samples"]
    last = max((straight / "checkpoints").glob("step-*")).name
    for name in LEARNED:
        one, two = (run / "checkpoints" / last / name for run in (straight, broken))
        if one.exists():
            kept = [file.read_bytes() for file in (one, two)]
            if name == "grpo.json":
                kept = [json.dumps(json.loads(text) | {"base": ""}).encode() for text in kept]
            assert kept[0] == kept[1], f"{last}/{name} differs"
