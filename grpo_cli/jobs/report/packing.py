"""Samples packed into the page for its reader: lines of a run's sample files, gzipped, as base64.

As many steps as a budget of bytes allows, evenly spread, each whole; what is not here the reader opens from the run's folder.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grpo_cli.run.folder import RunFolder, Split
from grpo_cli.run.reading import spread, steps_to_read
from grpo_cli.run.records import SampleRecord
from grpo_cli.text import strict_json

MOST_PACKED = 300_000
"""Bytes of all packs of a page, as base64."""
MOST_TEXT = 6000
"""Characters of a prompt's, an answer's or a turn's end."""
TRIED = 6
"""Files that are packed first, to know how many will fit."""
SPLITS: tuple[Split, ...] = ("train", "eval")


@dataclass(frozen=True)
class SamplePack:
    """`text` is base64 of gzipped JSON lines; `steps` of `all_steps` files of samples are in it."""

    text: str
    steps: int
    all_steps: int
    samples: int


def pack_samples(folder: RunFolder, most: int = MOST_PACKED) -> SamplePack:
    """The samples of as many steps as fit into `most` bytes; of each split the last step at least, where one fits."""
    all_steps = sum(len(folder.steps(split)) for split in SPLITS)
    read = sum(len(steps_to_read(folder, split)) for split in SPLITS)
    count = min(read, TRIED)
    lines, text = _packed(folder, count)
    if count < read:
        count = min(read, int(0.95 * count * most / max(1, len(text))))
        lines, text = _packed(folder, count)
    while len(text) > most and count:
        count = min(count - 1, int(0.9 * count * most / len(text)))
        lines, text = _packed(folder, count)
    return SamplePack(text, count, all_steps, lines)


def _packed(folder: RunFolder, count: int) -> tuple[int, str]:
    """How many lines so many files have, and the lines gzipped as base64."""
    lines = [line for step, split in _chosen(folder, count) for line in _lines(folder, step, split)]
    text = gzip.compress("".join(lines).encode(), 6, mtime=0) if lines else b""
    return len(lines), base64.b64encode(text).decode()


def _chosen(folder: RunFolder, count: int) -> list[tuple[int, Split]]:
    """Files to pack: two in three of training, the rest held-out, or more of one where the other has few."""
    train, held = (steps_to_read(folder, split) for split in SPLITS)
    of_held = min(len(held), max(count // 3, count - len(train)))
    return [
        *((step, SPLITS[0]) for step in spread(train, count - of_held)),
        *((step, SPLITS[1]) for step in spread(held, of_held)),
    ]


def _lines(folder: RunFolder, step: int, split: Split) -> Iterator[str]:
    path = folder.sample_path(step, split).relative_to(folder.path).as_posix()
    for number, record in enumerate(folder.samples(step, split), 1):
        yield strict_json(packed_line(record) | {"place": f"{path}:{number}"}) + "\n"


def packed_line(record: SampleRecord) -> dict[str, Any]:
    """The sample's line with long texts cut at their beginning, and of the row's columns the answer only."""
    line = record.without_columns()
    line |= {"prompt": _end(record.prompt), "completion": _end(record.completion)}
    if record.turns:
        line["turns"] = [
            {key: _end(value) if isinstance(value, str) else value for key, value in turn.items()}
            for turn in record.turns
        ]
    answer = record.fields.get("answer")
    return line | (
        {}
        if answer is None
        else {"answer": _end(answer if isinstance(answer, str) else json.dumps(answer, default=str))}
    )


def _end(text: str) -> str:
    return text if len(text) <= MOST_TEXT else "…" + text[-MOST_TEXT:]
