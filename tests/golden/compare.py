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
from typing import Any

HEADS = ("time/", "memory/", "speed/", "tokens/s", "eta")
WHOLE = ("at", "ms", "rate")
PARTS = ("second", "per_s", "tok_s", "_tok")
ENDS = ("_s", "/s")
"""Heads, whole names, parts and ends of names of what says when and how fast this machine computed, not what."""


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
    left, right = (lines(folder / "metrics.jsonl") for folder in (before, after))
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
        one, other = before / file, after / file
        if file.startswith("samples/") and lines(one) != lines(other):
            yield f"{before.name}: {file} differs"
            break
        if file.endswith(".safetensors") and one.read_bytes() != other.read_bytes():
            yield f"{before.name}: {file} differs"
            break


def files(folder: Path) -> set[str]:
    """Paths of a run's files, caches left out."""
    return {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and "cache" not in f.parts}


def lines(file: Path) -> list[dict[str, object]]:
    """The objects of a file of lines, without what was timed."""
    found: list[dict[str, object]] = [timeless(json.loads(line)) for line in file.read_text().splitlines()]
    return found


def timeless(value: Any) -> Any:
    """A JSON value without what was timed, at every depth."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if not is_timed(key)}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def is_timed(key: str) -> bool:
    """Whether a name is that of a time or a speed."""
    named = key in WHOLE or key.startswith(HEADS) or key.endswith(ENDS)
    return named or any(part in key for part in PARTS)


def output(name: str, before: Path, after: Path) -> Iterator[str]:
    """The first lines that differ of what a command printed; the folders' own paths are no difference."""
    old, new = (shown((folder / name).read_text().replace(str(folder.resolve()), "OUT")) for folder in (before, after))
    found = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:10]
    if found:
        yield f"{name}:\n    " + "\n    ".join(line[:160] for line in found)


def shown(text: str) -> list[str]:
    """The lines of a text; of a JSON object one line a value, without what was timed."""
    if not text.startswith("{"):
        return text.splitlines()
    return json.dumps(timeless(json.loads(text)), indent=1, ensure_ascii=False).splitlines()


if __name__ == "__main__":
    sys.exit(main())
