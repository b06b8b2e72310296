"""Hold two folders of `run.py` against each other: `python tests/golden/compare.py BEFORE AFTER`.

Equal must be: every metric but times, memory and speeds; every sample; the weights of every checkpoint, byte for byte;
the files of a run; and what `verify`, `explain`, `schema` and the help pages print.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

MEASURED = ("time/", "memory/", "speed/", "tokens/s", "eta")
"""Heads of metric names that say how fast this machine was, not what was computed."""


def main() -> int:
    """0 where nothing differs."""
    before, after = (Path(word) for word in sys.argv[1:3])
    runs = sorted(folder.name for folder in (before / "runs").iterdir())
    outputs = sorted(file.name for file in before.glob("*.out") if file.stem not in runs)
    if not runs or not outputs:
        print(f"{before} holds no golden runs", file=sys.stderr)
        return 2
    different = [line for name in runs for line in run(before / "runs" / name, after / "runs" / name)]
    different += [line for name in outputs for line in output(name, before, after)]
    print("\n".join(different) or f"equal: {len(runs)} runs, {len(outputs)} outputs")
    return bool(different)


def run(before: Path, after: Path) -> Iterator[str]:
    """What differs between two runs of one recipe, the first of each kind."""
    old, new = files(before), files(after)
    if old != new:
        yield f"{before.name}: files {sorted(old ^ new)[:6]}"
    left, right = (metrics(folder / "metrics.jsonl") for folder in (before, after))
    if len(left) != len(right):
        yield f"{before.name}: {len(left)} and {len(right)} lines of metrics"
    for n, (one, other) in enumerate(zip(left, right, strict=False)):
        keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
        if keys:
            yield f"{before.name}: metrics line {n + 1}: " + ", ".join(
                f"{k} {one.get(k)} -> {other.get(k)}" for k in keys[:6]
            )
            break
    for file in sorted(old & new):
        exact = file.startswith("samples/") or file.endswith(".safetensors")
        if exact and (before / file).read_bytes() != (after / file).read_bytes():
            yield f"{before.name}: {file} differs"
            break


def files(folder: Path) -> set[str]:
    """Paths of a run's files, caches left out."""
    return {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and "cache" not in f.parts}


def metrics(file: Path) -> list[dict[str, object]]:
    """Every line without what was timed."""
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith(MEASURED) and not is_timed(k)}
        for line in file.read_text().splitlines()
    ]


def is_timed(key: str) -> bool:
    """Whether a metric is a time or a speed by the end of its name."""
    return "seconds" in key or "per_s" in key or "tok_s" in key


def output(name: str, before: Path, after: Path) -> Iterator[str]:
    """The first lines that differ of what a command printed; the folders' own paths are no difference."""
    old, new = (
        (folder / name).read_text().replace(str(folder.resolve()), "OUT").splitlines()
        for folder in (before, after)
    )
    found = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:10]
    if found:
        yield f"{name}:\n    " + "\n    ".join(line[:160] for line in found)


if __name__ == "__main__":
    sys.exit(main())
