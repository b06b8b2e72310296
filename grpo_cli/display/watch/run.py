"""A run seen from its folder: the same frame and end card as the trainer's own, from files alone.

The folder does not record what a step is doing now, only when the last one ended; that is what is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

from grpo_cli.display.frame.sample import view_samples
from grpo_cli.display.frame.state import RunState
from grpo_cli.findings.held_out import trusted_score
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.follow import Follower, is_evaluation, is_shown_step
from grpo_cli.run.info import Card, Level, Status, info_of, of_all_rows

OVER = get_args(Status)
OF_STEPS = ("generate", "environment", "verify", "update")
UNSHOWN = ("imports", "monitor")
LONG_S = 600.0
"""After this long without a step a note states that nothing comes, since a killed process writes no status."""

WORDS: dict[str, Level] = {"INFO": "good", "WARN": "warn", "ERROR": "error"}


class RunWatcher:
    """Keeps a `RunState` up to date with a folder."""

    def __init__(self, folder: RunFolder, now: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self.info = info_of(folder)
        self.status = ""
        self._now = now
        self._follower = Follower(folder)
        self.began = seconds_of(folder.manifest().get("started")) or now()
        self.state = self._fresh()
        self._last_at = self.began
        self._last_step = 0

    def look(self) -> list[dict[str, Any]]:
        """Take in what is new, and give back the new metric lines."""
        news = self._follower.look()
        if news.restarted:
            keys = self.state.snapshot(0.0).keys
            self.state = self._fresh()
            self.state.set(keys=keys)
        lines = sorted(
            [*news.steps, *(e for e in news.evaluations if e not in news.steps)], key=lambda m: m.get("step") or 0
        )
        for metrics in news.steps:
            is_newest = metrics is news.steps[-1]
            step = int(metrics["step"])
            self.state.step(metrics, view_samples(list(self.folder.samples(step))) if is_newest else None)
            self._last_step, self._last_at = step, seconds_of(metrics.get("at")) or self._now()
        for metrics in news.evaluations:
            self.state.evaluated(metrics)
        for note in news.notes[-4:]:
            text, _, hint = note.text.partition("  hint: ")
            self.state.note(WORDS[note.level], text, hint, seconds_of(note.at) or self._now())
        self.status = news.status
        if self.status in OVER:
            self.state.set(ended=self.status)
        else:
            quiet = self._now() - self._last_at
            doing = f"step {self._last_step + 1}" if quiet < LONG_S else f"no news since step {self._last_step}"
            self.state.act(doing, None, None, self._last_at)
        return lines

    @property
    def is_over(self) -> bool:
        """Whether the run's manifest has an end."""
        return self.status in OVER

    def _fresh(self) -> RunState:
        state = RunState(self.began)
        state.set(info=self.info)
        return state


def card_of(folder: RunFolder) -> Card:
    """The end card of a run that is over."""
    manifest, lines = folder.manifest(), folder.metrics()
    history = tuple(m for m in lines if is_shown_step(m))
    evaluations = tuple(m for m in lines if is_evaluation(m))
    times = [at for at in (seconds_of(manifest.get("started")), *(seconds_of(m.get("at")) for m in lines)) if at]
    status: Status = manifest["status"] if manifest.get("status") in OVER else "stopped"
    best = max(
        (e for e in of_all_rows(evaluations) if e.get("eval/pass@1") is not None), key=trusted_score, default=None
    )
    best_path = folder.checkpoint_path(int(best["step"])) if best else None
    checkpoints = sorted(p for p in (folder.path / "checkpoints").glob("step-*") if p.suffix == "")
    acted = manifest.get("acted") if status in ("paused", "rolled_back") else None
    next_ = f"grpo eval {checkpoints[-1]}" if checkpoints else ""
    phases = manifest.get("phases") or {}
    spent = {name: float(took["wall_s"]) for name, took in phases.items() if name not in UNSHOWN}
    return Card(
        status=status,
        wall_s=max(times) - min(times) if times else 0.0,
        history=history,
        evaluations=evaluations,
        device=str(manifest.get("device") or ""),
        best=str(best_path) if best_path and best_path.exists() else "",
        report=str(folder.path / "report.html") if (folder.path / "report.html").exists() else "",
        reason=str(manifest.get("reason") or ""),
        evidence=str(acted[-1]["evidence"]) if acted else "",
        next=f"grpo train --resume {folder.path}" if status == "paused" else next_,
        # as in the run's own card: what is no part of a step comes first
        seconds={name: spent[name] for name in sorted(spent, key=lambda name: name in OF_STEPS)},
    )


def seconds_of(stamp: object) -> float | None:
    """Seconds since 1970 of an ISO time in UTC; None of anything else."""
    if not isinstance(stamp, str):
        return None
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
