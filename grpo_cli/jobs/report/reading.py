"""The completions behind the curves: the same held-out prompts over time, and training samples worth reading.

A limited number of files is read, spread evenly over the run; the page states which. Every sample names its file and
line. `read_samples` makes the digest that the page shows, `pack_samples` the compressed lines for its reader.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from grpo_cli.data.images import RowImage
from grpo_cli.data.rows import Row, load_rows
from grpo_cli.data.sources import Which
from grpo_cli.recipe.reading.load import load
from grpo_cli.run.folder import RunFolder, Split, base_of
from grpo_cli.run.reading import spread, steps_to_read
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import mean, percentile
from grpo_cli.text import strict_json
from grpo_verifiers.verdict import Outcome

# Samples packed into the page for its reader: lines of a run's sample files, gzipped, as base64.

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
    """The number of lines in these files, and the lines gzipped as base64."""
    lines = [
        strict_json(_shown(folder, step, split, line, record)) + "\n"
        for step, split in _chosen(folder, count)
        for line, record in enumerate(folder.samples(step, split), 1)
    ]
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


def packed_line(record: SampleRecord) -> dict[str, Any]:
    """The sample's line with long texts cut at their beginning, and of the row's columns the answer only."""
    line = record.as_json(has_columns=False)
    line |= {"prompt": _end(record.prompt), "completion": _end(record.completion)}
    if record.turns:
        line["turns"] = [
            {key: _end(value) if isinstance(value, str) else value for key, value in turn.items()}
            for turn in record.turns
        ]
    if (answer := record.fields.get("answer")) is not None:
        line["answer"] = _end(answer if isinstance(answer, str) else json.dumps(answer, default=str))
    return line


def _end(text: str) -> str:
    return text if len(text) <= MOST_TEXT else "…" + text[-MOST_TEXT:]


MOST_MOMENTS = 5
MOST_PROMPTS = 60
MOST_ROWS = 256
MOST_CHARS = 4000
PER_KIND = 5


@dataclass
class SampleDigest:
    """The data read: reward ranges by step, held-out rates by prompt, prompts over time, and surprising samples."""

    bands: dict[int, tuple[float, float]] = field(default_factory=dict)
    heat: tuple[list[str], list[int], list[list[float | None]]] = field(default_factory=lambda: ([], [], []))
    prompts: list[dict[str, Any]] = field(default_factory=list)
    surprises: list[dict[str, Any]] = field(default_factory=list)
    files_read: int = 0
    files: int = 0

    @property
    def has_samples(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.prompts or self.surprises)


def read_samples(folder: RunFolder) -> SampleDigest:
    """Read what the budget allows."""
    reading = SampleDigest()
    chosen = steps_to_read(folder)
    reading.files, reading.files_read = len(folder.steps()), len(chosen)
    found: dict[str, list[tuple[float, int, int, SampleRecord]]] = {}
    for step in chosen:
        groups: dict[str, list[tuple[int, SampleRecord]]] = {}
        for line, sample in enumerate(folder.samples(step), 1):
            groups.setdefault(str(sample.group), []).append((line, sample))
        means = [
            m for g in groups.values() if (m := mean([s.reward for _, s in g if s.reward is not None])) is not None
        ]
        if means:
            reading.bands[step] = (percentile(means, 0.1) or 0.0, percentile(means, 0.9) or 0.0)
        for group in groups.values():
            for kind, weight, line, sample in surprises_of(group):
                ranked = found.setdefault(kind, [])
                ranked.append((weight, step, line, sample))
                ranked.sort(key=lambda entry: -entry[0])
                del ranked[PER_KIND:]
    reading.surprises = [
        _shown(folder, step, "train", line, sample) | {"kind": kind}
        for kind, ranked in found.items()
        for _, step, line, sample in ranked
    ]
    _held_out(folder, reading)
    return reading


def surprises_of(group: Sequence[tuple[int, SampleRecord]]) -> list[tuple[str, float, int, SampleRecord]]:
    """Samples of one group worth reading, as (kind, weight, line, sample); heavier is more worth it."""
    judged = [(line, s) for line, s in group if s.is_judged]
    right = [(line, s) for line, s in judged if s.is_right]
    wrong = [(line, s) for line, s in judged if not s.is_right]
    found: list[tuple[str, float, int, SampleRecord]] = []
    if len(right) == 1 and len(wrong) >= 3:
        found.append(("lone right in a wrong group", float(len(wrong)), *right[0]))
    if len(wrong) == 1 and len(right) >= 3:
        found.append(("lone wrong in a right group", float(len(right)), *wrong[0]))
    longest = max(group, key=lambda pair: pair[1].tokens)
    found.append(("longest", float(longest[1].tokens), *longest))
    if right:
        shortest = min(right, key=lambda pair: pair[1].tokens)
        found.append(("shortest right", -float(shortest[1].tokens), *shortest))
    for line, sample in group:
        outcomes = {verdict.outcome for verdict in sample.verdicts.values()}
        if Outcome.ERROR in outcomes:
            found.append(("verifier error", float(sample.step), line, sample))
        if Outcome.OVER_LIMIT in outcomes:
            found.append(("over limit", float(sample.step), line, sample))
    return found


def _held_out(folder: RunFolder, reading: SampleDigest) -> None:
    """Rates of each prompt at each evaluation, then the completions of some prompts at a few of them.

    Two passes, so that only one file of held-out samples is in memory at a time.
    """
    shown = steps_to_read(folder, "eval")
    if not shown:
        return
    tables = [{row: _rate(samples) for row, samples in _by_row(folder, step).items()} for step in shown]
    every = [row for row in tables[0] if all(row in table for table in tables)]
    names = every or [row for row in tables[0] if row in tables[-1]]
    rates = {row: [table.get(row) for table in tables] for row in names}
    names.sort(key=lambda row: (rates[row][-1] or 0.0, rates[row][0] or 0.0, row))
    kept = [names[i] for i in spread(range(len(names)), MOST_ROWS)]
    reading.heat = (kept, shown, [rates[row] for row in kept])
    chosen: dict[str, dict[str, Any]] = {
        row: {"row": row, "change": f"{_percent(rates[row][0])} → {_percent(rates[row][-1])} right", "moments": []}
        for row in probes(names, rates)
    }
    for step in spread(shown, MOST_MOMENTS):
        samples = _by_row(folder, step)
        for row, entry in chosen.items():
            found = samples.get(row, [])
            if found and "prompt" not in entry:
                answer = found[0][1].fields.get("answer")
                entry |= {
                    "prompt": found[0][1].prompt[:MOST_CHARS],
                    "expected": "" if answer is None else str(answer)[:400],
                }
            # a right and a wrong one if there are both, else the first two
            right, wrong = ([pair for pair in found if pair[1].is_right is is_right] for is_right in (True, False))
            two = [right[0], wrong[0]] if right and wrong else found[:2]
            pair = [_shown(folder, step, "eval", line, sample) for line, sample in two]
            entry["moments"].append({"step": step, "rate": _rate(found), "samples": pair})
    reading.prompts = list(chosen.values())


def _by_row(folder: RunFolder, step: int) -> dict[str, list[tuple[int, SampleRecord]]]:
    rows: dict[str, list[tuple[int, SampleRecord]]] = {}
    for line, sample in enumerate(folder.samples(step, "eval"), 1):
        rows.setdefault(sample.row, []).append((line, sample))
    return rows


def probes(names: Sequence[str], rates: dict[str, list[float | None]], most: int = MOST_PROMPTS) -> list[str]:
    """Prompts to read: the ones that gained most, those that lost, those that never moved, then the rest."""
    change = {row: (rates[row][-1] or 0.0) - (rates[row][0] or 0.0) for row in names}
    gained = sorted((r for r in names if change[r] > 0), key=lambda r: (-change[r], r))
    lost = sorted((r for r in names if change[r] < 0), key=lambda r: (change[r], r))
    never = sorted(r for r in names if not any(rates[r]))
    first = [*gained[:4], *lost[:2], *never[:2]]
    rest = [r for pool in (lost, never, gained, names) for r in pool]
    return list(dict.fromkeys([*first, *rest]))[:most]


def _rate(samples: Sequence[tuple[int, SampleRecord]]) -> float | None:
    judged = [s for _, s in samples if s.is_judged]
    return mean([float(s.is_right) for s in judged])


def _shown(folder: RunFolder, step: int, split: Split, line: int, sample: SampleRecord) -> dict[str, Any]:
    path = folder.sample_path(step, split).relative_to(folder.path).as_posix()
    return packed_line(sample) | {"place": f"{path}:{line}"}


THUMBNAIL = 96
"""Most pixels of a side of a small copy."""


def add_thumbnails(folder: RunFolder, reading: SampleDigest) -> None:
    """Put small copies of their rows' images, as `data:` addresses, to the prompts and samples that are shown.

    Raises:
        RecipeError, DataError, SetupError: the rows of the run cannot be read again.
    """
    base, rows = base_of(folder), dict[tuple[str, str], Row]()
    recipe = load(str(folder.path / "recipe.yaml"), base=base, of_run=True)
    if not recipe.data.images:
        return
    wanted: list[Which] = ["train", "eval"] if recipe.data.eval is not None else ["train"]
    for which in wanted:
        rows |= {(which, row.id): row for row in load_rows(recipe.data, which, base)}
    shown = [(SPLITS[1], entry) for entry in reading.prompts] + [(SPLITS[0], entry) for entry in reading.surprises]
    for split, entry in shown:
        if (row := rows.get((split, entry["row"]))) is not None:
            entry["images"] = [thumbnail(image) for image in row.images]


def thumbnail(image: RowImage) -> str:
    """A small copy of an image as the address of a PNG."""
    picture, out = image.picture(), BytesIO()
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    picture.save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.0f}%"
