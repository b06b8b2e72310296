"""Reads the samples of a whole run: a selection of its files, evenly spread, each read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpo_cli.run.folder import RunFolder, Split
from grpo_cli.run.records import SampleRecord

MOST_FILES: dict[Split, int] = {"train": 100, "eval": 40, "canary": 40}
"""Files that are looked through."""
MOST_BYTES = 200_000_000
"""Of them together, by the size of the largest of a few."""
KEPT_BYTES = 64_000_000
"""Size of the files whose records stay in memory."""


class ReadOnce(RunFolder):
    """A run whose samples are read several times: samples already read are cached, up to `KEPT_BYTES` of files."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder.path)
        self._kept: dict[tuple[Split, int], list[SampleRecord]] = {}
        self._room = KEPT_BYTES

    def samples(self, step: int, split: Split = "train") -> Iterator[SampleRecord]:
        """The samples of a step, in order; none if nothing was written."""
        if (known := self._kept.get((split, step))) is not None:
            return iter(known)
        found, size = list(super().samples(step, split)), size_of(self, step, split)
        if size <= self._room:
            self._room -= size
            self._kept[split, step] = found
        return iter(found)


def steps_to_read(folder: RunFolder, split: Split = "train") -> list[int]:
    """The steps whose samples are looked through: all, or as many as the budget of files and bytes allows."""
    steps = folder.steps(split)
    largest = max([1, *(size_of(folder, step, split) for step in spread(steps, 10))])
    return spread(steps, min(MOST_FILES[split], max(2, MOST_BYTES // largest)))


def size_of(folder: RunFolder, step: int, split: Split) -> int:
    """Bytes of the file of samples; 0 of none."""
    path = folder.sample_path(step, split)
    return path.stat().st_size if path.exists() else 0


def spread(values: Sequence[int], most: int) -> list[int]:
    """At most this many, evenly spread, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    if most < 2:
        return list(values[-most:] if most else [])
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
