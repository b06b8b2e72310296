"""How runs ended, and whether two of them recorded and learned the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.loop.test_resume import what

LEARNED = ("model.safetensors", "adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "grpo.json")
"""Files of a checkpoint that hold state of the run, none of them a time."""


def train(recipe: Path, runs: Path, *more: str) -> list[str]:
    """Arguments of a run named `run` in the folder `runs`."""
    return ["train", str(recipe), "--display", "plain", "--set", f"run.dir={runs}", "--set", "run.name=run", *more]


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
