"""Rewards that fail on some completions, or on some rows, each time."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any


def by_content(completion: str, answer: str) -> Any:
    if completion == "value":
        return float(int(completion))
    if completion == "spin":
        while True:
            pass
    if completion == "eat":
        return len(bytearray(10**13))
    if completion == "exit":
        os._exit(3)
    if completion == "deep":
        json.loads("[" * 100_000)
    if completion == "child":
        subprocess.run([sys.executable, "-c", "while True: pass"], timeout=0.2)
    if completion == "none":
        return None
    if completion == "file":
        (pathlib.Path(completion) / "no/such/file").read_text()
    if completion == "refused":
        raise ConnectionRefusedError("no")
    if completion == "hang":
        time.sleep(3600)
    if completion == "import":
        import no_such_module_here  # noqa: F401
    return float(completion == answer)


def by_row(completion: str, answer: str, source: str) -> float:
    return {"known": float(completion == answer)}[source]


def spins(completion: str) -> float:
    print("called", flush=True)
    while True:
        pass


def prints(completion: str) -> float:
    for _ in range(250):
        print("x" * 4_000)
    return 1.0


def lists_hang(completions: list[str], **columns: object) -> list[float]:
    print("called", flush=True)
    time.sleep(3600)
    return [0.0] * len(completions)
