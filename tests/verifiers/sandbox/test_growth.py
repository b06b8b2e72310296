"""Hundreds of runs leave nothing behind: no memory, no process, no open file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import Sample
from grpo_verifiers.program import CodeOptions, CodeVerifier
from tests.verifiers.sandbox.test_robust import BAD, GOOD, ROW, descendants


def growth(verifier: CodeVerifier, samples: list[Sample], rounds: int) -> dict[str, Any]:
    """Descriptors, processes and memory before and after."""
    verifier.start()
    assert verifier._lanes is not None
    for slot in verifier._lanes._slots:
        slot.lane("plain", "tester")
    me, out = Path("/proc/self"), {}
    for when in ("before", "after"):
        for _ in range(3 if when == "before" else rounds):
            verifier.judge(samples)
        lanes = (
            [lane.process.pid for slot in verifier._lanes._slots for lane in slot._lanes.values()]
            if verifier._lanes
            else []
        )
        pids = sorted({pid for lane in lanes for pid in (lane, *descendants(lane))})
        out[when] = {
            "fds": len(list((me / "fd").iterdir())),
            "processes": len(pids),
            "lane_kb": sum(resident_kb(pid) for pid in pids),
            "own_kb": resident_kb(os.getpid()),
        }
    return out


def resident_kb(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4
    except OSError:
        return 0


def mixed_samples(verifier: CodeVerifier) -> list[Sample]:
    program, io = verifier.compile(ROW), verifier.compile({"tests": [{"input": "3", "output": "6"}]})
    calls = verifier.compile({"entry_point": "double", "tests": ["assert double(2) == 4"]})
    scratch = "open('left', 'w').write('x' * 1000)\nprint(int(input()) * 2)"
    codes = ["print(int(input()) * 2)", scratch, "import os; os._exit(3)", "raise SystemExit"]
    return [Sample(GOOD, program), Sample(GOOD, calls), Sample(BAD, calls), *[Sample(c, io) for c in codes]]


def check_growth(found: dict[str, Any]) -> None:
    before, after = found["before"], found["after"]
    assert after["fds"] <= before["fds"] + 2, found
    assert after["processes"] == before["processes"], found
    assert after["lane_kb"] <= before["lane_kb"] * 1.15 + 2048, found
    assert after["own_kb"] <= before["own_kb"] + 8192, found


def test_hundreds_of_runs_leave_no_growth() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=2))
    try:
        check_growth(growth(verifier, mixed_samples(verifier), 40))
    finally:
        verifier.close()


@pytest.mark.slow
def test_ten_thousand_runs_leave_no_growth() -> None:
    verifier = CodeVerifier(CodeOptions(lanes=2))
    try:
        samples = mixed_samples(verifier)
        check_growth(growth(verifier, samples, 10_000 // len(samples) + 1))
    finally:
        verifier.close()
