"""What display, evaluation and report take of a run, in CPU-seconds of the process itself: what others do does not count.

    PYTHONPATH=.:verifiers python bench/bench_shares.py [RECIPE] [--set KEY=VALUE ...] > table.md

The run has a terminal of 120 x 40, whose live display it draws. The bars: 1 % for the display, 10 % for all evaluations.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import pty
import struct
import sys
import tempfile
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parents[1]))

SIZE = (40, 120)
TOLD = ("start", "phase", "progress", "step", "recall", "evaluated", "note", "finish", "close")
"""What the trainer calls of a display, in its own thread."""


class Counted:
    """CPU-seconds of wrapped functions by name; a call within a call of the same clock counts once."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inside = threading.local()

    def wrap(self, owner: Any, method: str, name: str, clock: Callable[[], float]) -> None:
        """Replace a function by itself and a clock."""
        plain = getattr(owner, method)

        @functools.wraps(plain)
        def counted(*args: Any, **named: Any) -> Any:
            if getattr(self._inside, name, False):
                return plain(*args, **named)
            setattr(self._inside, name, True)
            before = clock()
            try:
                return plain(*args, **named)
            finally:
                setattr(self._inside, name, False)
                self.seconds[name] += clock() - before

        setattr(owner, method, counted)


def train(words: list[str], out: Path) -> NoReturn:
    """In the child, which has the terminal: the run, then its seconds into a file."""
    from grpo_cli.display.terminal.live import LiveDisplay
    from grpo_cli.jobs.train import ending
    from grpo_cli.jobs.train.measurements import HeldOut

    counted = Counted()
    counted.wrap(LiveDisplay, "_run", "display: its thread", time.thread_time)
    for method in TOLD:
        counted.wrap(LiveDisplay, method, "display: calls", time.thread_time)
    counted.wrap(HeldOut, "measure", "evaluations", time.process_time)
    counted.wrap(ending, "write_own_report", "report", time.process_time)
    sys.argv = ["grpo", *words]
    from grpo_cli.app import main

    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        out.write_text(json.dumps({**counted.seconds, "whole": time.process_time()}), encoding="utf-8")
        os._exit(code)  # the folder of `out` is the parent's to remove


def main() -> None:
    recipe, *sets = sys.argv[1:] or ["quickstart"]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "seconds.json"
        words = ["train", recipe, "--set", f"run.dir={place}/runs", *sets]
        child, terminal = pty.fork()
        if child == 0:
            os.environ["TERM"] = "xterm-256color"
            fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
            train(words, out)
        drawn = 0
        while True:
            try:
                got = os.read(terminal, 65536)
            except OSError:  # Linux's way to say that the child has closed it
                break
            drawn += len(got)
        if (code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) != 0:
            raise SystemExit(f"the run ended with code {code}")
        seconds = json.loads(out.read_text())
    whole = seconds.pop("whole")
    print(f"| of `grpo {' '.join(words[:2])}` | CPU-seconds | share |\n|---|---:|---:|")
    for name, spent in sorted(seconds.items()):
        print(f"| {name} | {spent:.2f} | {spent / whole:.2%} |")
    print(f"| whole process | {whole:.1f} | |\n\n{drawn / 1000:,.0f} kB were written to the terminal.")


if __name__ == "__main__":
    main()
