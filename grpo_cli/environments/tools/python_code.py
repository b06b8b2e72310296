"""The tool `python`: code of the model in the sandbox that also judges code; what it prints is the answer."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack

from grpo_verifiers.program.task import packages_of
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.inside.child import NO_CODE, NO_MEMORY
from grpo_verifiers.sandbox.lane import LaneFailed, LaneReport, memory_files, read_file
from grpo_verifiers.sandbox.lanes import LaneSlot

LONGEST = 4_000
"""Characters of an answer; the middle of a longer one is left out."""
CPU_S, WALL_S, MEMORY_MB = 2.0, 6.0, 512
OUTPUT_BYTES = 1 << 20

_SLOTS: list[LaneSlot] = []
_LOCK = threading.Lock()


def python(code: str) -> str:
    """Run a Python program and see what it prints. Every call is a program of its own.

    Args:
        code: The program.

    Returns:
        What it printed, and the error it ended with, if any.
    """
    with _LOCK:
        try:
            report, out, err = _run(code)
        except LaneFailed:
            _slot().discard()  # a fault of the sandbox, not of the code: once more in a fresh one
            report, out, err = _run(code)
    # of the error its end: the lines above are of the interpreter
    text = "\n".join(part for part in (out.rstrip("\n"), err.rstrip("\n")[-1_500:], _ended(report)) if part)
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}\n… {len(text) - LONGEST} characters left out …\n{text[-LONGEST // 2 :]}"
    return text or "(it printed nothing)"


def start() -> str:
    """Name of the isolation in force.

    Raises:
        Unavailable: this machine has none.
    """
    if not _SLOTS:
        _SLOTS.append(LaneSlot(tiers.choose().name))
    return _SLOTS[0].tier


def _slot() -> LaneSlot:
    start()
    return _SLOTS[0]


def _run(code: str) -> tuple[LaneReport, str, str]:
    payload = json.dumps({"code": code, "entry": "", "prompt": "", "before": ""}).encode()
    kind = packages_of(code)
    limits = {
        "cpu_s": CPU_S,
        "wall_s": WALL_S,
        "memory_mb": MEMORY_MB if kind == "plain" else 4 * MEMORY_MB,
        "output_bytes": OUTPUT_BYTES,
        "steps": 1,
    }
    with ExitStack() as stack:
        fds = stack.enter_context(memory_files(payload=payload, stdin=b"", stdout=None, stderr=None))
        report = _slot().lane(kind).run("stdio", fds, limits)
        out, err = (read_file(fds[name], OUTPUT_BYTES).decode("utf-8", "replace") for name in ("stdout", "stderr"))
    return report, out, err


def _ended(report: LaneReport) -> str:
    if report.killed or report.exit_code == -24:
        return "error: it took too long and was ended"
    if report.exit_code == NO_MEMORY:
        return "error: it took too much memory"
    if report.exit_code == -25:
        return "error: it printed too much"
    if report.exit_code == NO_CODE:
        return "error: this is no Python code"
    return f"error: it was ended by signal {-report.exit_code}" if report.exit_code < 0 else ""
