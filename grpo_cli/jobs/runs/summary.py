"""One run in one line, from its folder alone; old and damaged runs still have one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpo_cli.display.watch.run import LONG_S, OVER, card_of, seconds_of
from grpo_cli.errors import DataError
from grpo_cli.findings.held_out import trusted_score
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Metrics, info_of, of_all_rows

UNREADABLE = "unreadable"
STATUSES = ("running", "silent", *OVER, UNREADABLE)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """`score` is the held-out pass@1 of the last evaluation (`half`: its ±), `start` that of the first; `best` and `gain` go by
    evaluations of all held-out rows; `seconds` from the start to the last news; `bytes` on disk. None is "not measured"."""

    name: str
    path: str
    status: str
    recipe: str = ""
    model: str = ""
    seed: int | None = None
    step: int = 0
    steps: int = 0
    started: str = ""
    seconds: float = 0.0
    start: float | None = None
    score: float | None = None
    half: float | None = None
    best: float | None = None
    best_step: int | None = None
    reward: float | None = None
    bytes: int = 0
    reason: str = ""
    gain: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing writes to it any more, as far as it says itself."""
        return self.status in OVER or self.status in (UNREADABLE, "silent")

    def as_json(self) -> dict[str, Any]:
        """One object of `--json`."""
        return asdict(self)


def summarise(folder: RunFolder, now: float | None = None) -> RunSummary:
    """The line of a run. A run that says nothing for ten minutes and has no end is `silent`: it was killed, or it waits."""
    size = bytes_of(folder.path)
    try:
        info, card, manifest = info_of(folder), card_of(folder), folder.manifest()
    except (DataError, OSError, ValueError) as err:
        return RunSummary(folder.name, str(folder.path), UNREADABLE, bytes=size, reason=str(err))
    measured = [e for e in card.evaluations if e.get("eval/pass@1") is not None]
    all_rows = of_all_rows(measured)
    best = max(all_rows, key=trusted_score, default=None)
    last: Metrics = measured[-1] if measured else {}
    newest: Metrics = card.history[-1] if card.history else {}
    return RunSummary(
        name=folder.name,
        path=str(folder.path),
        status=_status(manifest, folder.path, time.time() if now is None else now),
        recipe=info.recipe,
        model=info.model,
        seed=info.seed,
        step=int(newest.get("step") or 0),
        steps=info.steps,
        started=str(manifest.get("started") or ""),
        seconds=card.wall_s,
        start=trusted_score(measured[0]) if measured else None,
        score=trusted_score(last) if last else None,
        half=last.get("eval/pass@1/half"),
        best=trusted_score(best) if best else None,
        best_step=int(best["step"]) if best else None,
        reward=newest.get("reward/total/mean"),
        bytes=size,
        reason=str(manifest.get("reason") or ""),
        gain=trusted_score(all_rows[-1]) - trusted_score(all_rows[0]) if len(all_rows) > 1 else None,
    )


def _status(manifest: Mapping[str, Any], path: Path, now: float) -> str:
    found = manifest.get("status")
    if found in OVER:
        return str(found)
    news = [f.stat().st_mtime for f in (path / "metrics.jsonl", path / "train.log") if f.exists()]
    began = seconds_of(manifest.get("started"))
    return "running" if now - max([*news, began or 0.0]) < LONG_S else "silent"


def bytes_of(path: Path) -> int:
    """What a folder takes on disk, links not followed; what vanishes meanwhile counts nothing."""
    total, left = 0, [path]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total
