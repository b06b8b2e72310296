"""The tool `python`: runs the model's code in the same sandbox as the code verifier; the result is the printed text."""

from __future__ import annotations

import functools

from grpo_verifiers.program.task import packages_of
from grpo_verifiers.program.verifier import CodeOptions, CodeVerifier
from grpo_verifiers.sandbox.lane import ScriptRun, limits_of, memory_files, run_script, script
from grpo_verifiers.sandbox.lanes import LaneSlot

LONGEST = 4_000
"""Characters of an answer; the middle of a longer one is left out."""
CPU_S, MEMORY_MB = 2.0, 512
OUTPUT_BYTES = 1 << 20
ENDINGS = {
    "time": "it took too long and was ended",
    "wall_time": "it took too long and was ended",
    "memory": "it took too much memory",
    "output": "it printed too much",
    "no_code": "this is no Python code",
}


def python(code: str) -> str:
    """Run a Python program and see what it prints. Every call is a program of its own.

    Args:
        code: The program.

    Returns:
        What it printed, and the error it ended with, if any.
    """

    def run(slot: LaneSlot) -> ScriptRun:
        kind = packages_of(code)
        limits = limits_of(kind, CPU_S, MEMORY_MB, output_bytes=OUTPUT_BYTES)
        with memory_files(payload=script(code)) as payload:
            return run_script(slot.lane(kind), payload, limits)

    with _verifier().ready().slot() as slot:
        ran = slot.attempt(run)
    ended = ENDINGS.get(ran.ended) or (
        "it was ended by " + ran.ended.replace(":", " ") if "signal" in ran.ended else ""
    )
    out, err = ran.stdout.decode("utf-8", "replace").rstrip("\n"), ran.stderr.rstrip("\n")
    # keep the end of the error: the lines above it come from the interpreter
    text = "\n".join(part for part in (out, err[-1_500:], ended and f"error: {ended}") if part)
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}\n… {len(text) - LONGEST} characters left out …\n{text[-LONGEST // 2 :]}"
    return text or "(it printed nothing)"


@functools.cache
def _verifier() -> CodeVerifier:
    """Whose lanes run it."""
    return CodeVerifier(CodeOptions(lanes=1))


def start() -> None:
    """Start the sandbox.

    Raises:
        Unavailable: this machine has none.
    """
    _verifier().start()
