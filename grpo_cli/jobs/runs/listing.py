"""The table of runs: which, in what order, as what text."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

from grpo_cli.errors import SetupError, UsageError
from grpo_cli.jobs.runs.summary import STATUSES, RunSummary, summarise
from grpo_cli.run.find import list_runs
from grpo_cli.run.folder import RunFolder
from grpo_cli.text import DASH, duration, plus_minus, score, visible
from grpo_verifiers.names import nearest

# Deleting runs: never one that may still be written to, and never a folder that is no run.


def removable(folders: Sequence[RunFolder], even_running: bool = False) -> list[RunSummary]:
    """What would go.

    Raises:
        UsageError: one of them still runs.
    """
    found = [summarise(folder) for folder in folders]
    for one in found:
        if not one.is_over and not even_running:
            raise UsageError(
                f"`{one.name}` is running", hint="end it first, or say --force if nothing writes to it any more"
            )
    return found


def remove(found: Sequence[RunSummary]) -> int:
    """Delete them with their checkpoints, samples and logs; returns the bytes that were taken.

    Raises:
        SetupError: a folder could not be deleted; those before it are gone.
    """
    freed = 0
    for one in found:
        try:
            shutil.rmtree(one.path)
        except OSError as err:
            raise SetupError(f"`{one.path}` could not be deleted: {err.strerror or err}") from err
        freed += one.bytes
    return freed


SCHEMA = 1
Order = Literal["started", "name", "status", "recipe", "step", "score", "best", "gain", "reward", "time", "size"]
ORDERS: tuple[str, ...] = get_args(Order)
_FIELDS = {"time": "seconds", "size": "bytes"}
"""Of a summary, where they have another name."""
_WORDS = ("name", "status", "recipe")
HEADER = ("run", "status", "steps", "held-out", "best", "gain", "time", "size", "recipe")


def listed(root: Path, by: str = "started", reverse: bool = False, status: Sequence[str] = ()) -> list[RunSummary]:
    """The runs under a folder; numbers from high to low, words from A on, times from the newest, unmeasured ones last.

    Raises:
        UsageError: no such order, or no such status.
    """
    for word in status:
        if word not in STATUSES:
            near = nearest(word, list(STATUSES), 0.5)
            raise UsageError(
                f"no run is `{word}`",
                place="--status",
                hint=f"did you mean `{near}`?" if near else f"one of {', '.join(STATUSES)}",
            )
    if by not in ORDERS:
        near = nearest(by, list(ORDERS), 0.5)
        raise UsageError(
            f"runs cannot be sorted by `{by}`",
            place="--sort",
            hint=f"did you mean `{near}`?" if near else f"one of {', '.join(ORDERS)}",
        )
    found = [summarise(folder) for folder in list_runs(root)]
    found = [one for one in found if not status or one.status in status]
    return ordered(found, by, reverse)


def ordered(found: Iterable[RunSummary], by: str, reverse: bool = False) -> list[RunSummary]:
    """Sorted by a column; runs without it stay last also the other way round."""
    key = attrgetter(_FIELDS.get(by, by))
    have, lack = list[RunSummary](), list[RunSummary]()
    for one in found:
        (lack if key(one) is None else have).append(one)
    have.sort(key=lambda one: one.name)
    have.sort(key=key, reverse=(by in _WORDS) == reverse)
    return have + lack


def as_object(found: Sequence[RunSummary]) -> dict[str, Any]:
    """The one object of `--json`."""
    return {"schema": SCHEMA, "runs": [one.as_json() for one in found]}


def rows_of(found: Sequence[RunSummary]) -> list[list[str]]:
    """Cells by `HEADER`."""
    return [
        [
            visible(one.name),
            visible(one.status),
            f"{one.step}/{one.steps}" if one.steps else str(one.step),
            held_out(one),
            f"{score(one.best)} @{one.best_step}" if one.best is not None else DASH,
            f"{one.gain:+.3f}" if one.gain is not None else DASH,
            duration(one.seconds),
            size_text(one.bytes),
            visible(Path(one.recipe).name) if one.recipe else DASH,
        ]
        for one in found
    ]


def held_out(one: RunSummary) -> str:
    """`.972 ±.014`."""
    return DASH if one.score is None else f"{score(one.score)} {plus_minus(one.half)}"


def size_text(size: float) -> str:
    """`1.3 GB`, in powers of 1,000 as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Lines of aligned columns; at a `width` the last columns that do not fit are left out, never the first three."""
    cells = [list(header), *map(list, rows)]
    wide = [max(len(row[i]) for row in cells) for i in range(len(header))]
    count = len(header)
    while width is not None and count > 3 and sum(wide[:count]) + 2 * (count - 1) > width:
        count -= 1
    return ["  ".join(cell.ljust(wide[i]) for i, cell in enumerate(row[:count])).rstrip() for row in cells]
