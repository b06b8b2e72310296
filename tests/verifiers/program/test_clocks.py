"""Tests that read a clock on a machine that lets them wait: the trial that waited least for its turn counts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_verifiers.program import CodeVerifier, trial
from grpo_verifiers.program.trial import Fate, Trial
from grpo_verifiers.sandbox.delays import Delays
from tests.builders.code_verifiers import score

CLOCK = "import time\nf = F()\nstart = time.monotonic()\nf.take()\nassert time.monotonic() - start >= 0.02"
TAKES = "class F:\n    def take(self): {}\n"


@pytest.mark.parametrize(
    ("delays", "tests", "n"),
    [
        ([0.0], CLOCK, 1),
        ([0.5, 0.0], CLOCK, 2),
        ([0.5, 0.4, 0.3], CLOCK, 3),
        ([], "f = F()\nassert f.take() is None", 0),
    ],
)
def test_a_test_that_reads_a_clock_is_tried_again_where_the_machine_let_it_wait(
    verifier: CodeVerifier, monkeypatch: pytest.MonkeyPatch, delays: list[float], tests: str, n: int
) -> None:
    seen = list[float]()

    def seconds(_: Delays) -> float:
        seen.append(delays[len(seen)])
        return seen[-1]

    monkeypatch.setattr(Delays, "seconds", seconds)
    monkeypatch.setattr(trial, "AGAIN_S", 60.0)
    score(verifier, "F", TAKES.format("pass"), tests)
    assert len(seen) == n


def test_the_trial_that_waited_least_counts(verifier: CodeVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    once, made = trial._program_once, list[int]()

    def program_once(*args: Any) -> tuple[Trial, float]:
        made.append(1)
        fate: Fate = "passed" if len(made) != 2 else "failed"
        found, _ = once(*args)
        found.results[:] = [trial.TestResult(fate)]
        return found, [0.5, 0.2, 0.3][len(made) - 1]

    monkeypatch.setattr(trial, "AGAIN_S", 60.0)
    monkeypatch.setattr(trial, "_program_once", program_once)
    assert score(verifier, "F", TAKES.format("pass"), CLOCK) == 0.0 and len(made) == 3


def test_the_kernel_says_how_long_processes_waited_for_their_turn() -> None:
    lane: Any = SimpleNamespace(process=SimpleNamespace(pid=os.getpid()))
    delays, processor = Delays(lane), min(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, [{processor}])\nwhile True: pass"
    started = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(3)]
    try:
        before = delays.seconds()
        time.sleep(0.5)
        # three on one processor: two of them wait
        assert delays.seconds() - before > 0.3
    finally:
        for process in started:
            process.kill()
            process.wait()
