"""Files of a run with something else in them than a run writes: cut off, emptied, binary, deep, of other types."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WHOLE = (
    *(b"", b"{", b"[]", b"5", b"null", b'"x"', b"{}", b"\n\n", b"[1,2\n", b"NaN", b"1" * 5000),
    *(b"\x00\xff\xfe" * 50, b"[" * 100_000, b'{"a":' * 100_000, b"\xef\xbb\xbf{}"),
    *(
        b" " * (1 << 24),
        b'{"a": 1, "a": {"b": 2}}',
        b'{"a": "\\ud800\\u001b]0;x\\u0007"}',
        b'{"format": 1, "files": [{}]}',
    ),
    *(b"{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}", b"{{ 'x' * 10**10 }}"),
    *(b"{% if", b"{{ messages[9].content.x.y }}", b"{{ raise_exception('\x1b[2J') }}"),
    *(b"- a: b\n  c: [\n", b"a: &x [*x]\n", b"a: &x {b: *x}\n", b"a: 1e999999\n", b"? {a: b}\n: c\n"),
)
"""In place of a whole file."""
GONE = object()
VALUES = (
    *(None, True, 5, -1, 2.5, -3.5, 1e308, 2**60, 10**400, float("nan"), float("inf"), "x", "", "NaN", "\ud800"),
    *([], [[]], [1, "x", None], {}, {"a": {}}, GONE),
)
"""In place of a value; `GONE` leaves its key out."""
MORE = {
    "phases": {"setup": {"wall_s": 1.0, "cpu_s": 0.5}},
    "acted": [{"action": "pause", "at": 1, "evidence": "a", "alarms": [{"code": "A", "step": 1, "text": "t"}]}],
    "pace": [{"step": 1, "train.steps": [1, 2]}],
    "stages": [{"name": "a", "folder": "b", "steps": 1, "before": {"pass@1": 0.5}, "after": None}],
    "sandbox": {"code": {"tier": "landlock", "warnings": []}},
    "warnings": ["w"],
    "changed": ["w"],
    "epoch_steps": 2,
}  # fmt: skip
"""Keys of `run.json` that not every run has."""
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class OddFile:
    """A file below a run's folder, what is odd about it, and what it then holds."""

    file: str
    how: str
    content: bytes

    def put(self, folder: Path) -> None:
        """Write it; whatever was there in its place goes."""
        place = folder / self.file
        place.unlink(missing_ok=True)
        if self.how == "fifo":
            os.mkfifo(place)
        elif self.how == "loop":
            place.symlink_to(place.name)
        elif self.how == "folder":
            place.mkdir()
        elif self.how != "gone":
            place.write_bytes(self.content)


def odd_places(run: Path, names: list[str], seed: int) -> Iterator[OddFile]:
    """As `odd_files`, with every fourth one no file: a pipe, a link to itself, a folder, nothing."""
    chance = random.Random(seed)
    for number, one in enumerate(odd_files(run, names, seed)):
        how = chance.choice(("fifo", "loop", "folder", "gone"))
        yield OddFile(one.file, how, b"") if number % 4 == 3 else one


def odd_files(run: Path, names: list[str], seed: int) -> Iterator[OddFile]:
    """One oddity of each file by turns, without end: first whole files, then values in them by chance."""
    chance = random.Random(seed)
    for round_ in range(10**6):
        for name in names:
            raw = (run / name).read_bytes()
            wholes = (*WHOLE, raw[: len(raw) // 2], raw[:-1])
            if round_ % 3 == 0 or not name.endswith((".json", ".jsonl", ".yaml")):
                content = wholes[chance.randrange(len(wholes))]
                yield OddFile(name, repr(content[:20]), content)
            else:
                yield _odd_value(name, raw, chance)


def _odd_value(name: str, raw: bytes, chance: random.Random) -> OddFile:
    value = chance.choice(VALUES)
    if name.endswith(".jsonl"):
        lines = [json.loads(line) for line in raw.splitlines()]
        at = chance.randrange(len(lines))
        path = chance.choice(list(_paths(lines[at])))
        lines[at] = _put(lines[at], path, value)
        return OddFile(name, f"{at}: {path} = {value!r:.30}", ("\n".join(map(json.dumps, lines)) + "\n").encode())
    if name.endswith(".yaml"):
        from ruamel.yaml import YAML

        data = YAML(typ="safe").load(raw.decode())
    else:
        data = json.loads(raw) | (MORE if name == "run.json" else {})
    path = chance.choice(list(_paths(data)))
    return OddFile(name, f"{path} = {value!r:.30}", json.dumps(_put(data, path, value)).encode())


def _paths(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _paths(one, (*path, key))


def _put(value: Any, path: Path_, new: object) -> Any:
    """A copy with another value at a path."""
    if not path:
        return None if new is GONE else new
    copy = json.loads(json.dumps(value))
    holder = copy
    for part in path[:-1]:
        holder = holder[part]
    if new is GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new
    return copy
