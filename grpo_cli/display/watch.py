"""Shows a run from the files of its folder, with the same frame and end card as the trainer: once, live, or line by
line.

How this works: `RunWatcher` reads what is new in a folder and keeps a `RunState` up to date; `print_once`, `follow_live` and
`follow_lines` are the three ways to show it. The folder does not record the current phase of a step, only when the last
step ended; this time is shown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO, get_args

from grpo_cli.display.frame.card import card_lines
from grpo_cli.display.frame.frame import frame_lines
from grpo_cli.display.frame.sample import view_samples
from grpo_cli.display.frame.state import RunState
from grpo_cli.display.plain import PlainDisplay
from grpo_cli.display.terminal.keys import KeyReader
from grpo_cli.display.terminal.painter import Painter, screen_size
from grpo_cli.findings.held_out import trusted_score
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.follow import Follower, is_evaluation, is_shown_step
from grpo_cli.run.info import Card, Level, Status, info_of, of_all_rows
from grpo_cli.run.records import dump_line
from grpo_cli.text import as_ascii, visible_lines

OVER = get_args(Status)
OF_STEPS = ("generate", "environment", "verify", "update")
UNSHOWN = ("imports", "monitor")
LONG_S = 600.0
"""Seconds without a step after which the frame shows that there is no news: a killed process writes no status."""

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
        self.state = RunState(self.began, self.info)
        self._last_at = self.began
        self._last_step = 0

    def look(self) -> list[dict[str, Any]]:
        """Read new data, and return the new metric lines."""
        news = self._follower.look()
        if news.restarted:
            keys = self.state.snapshot(0.0).keys
            self.state = RunState(self.began, self.info)
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
        # as in the run's own card: time outside of steps comes first
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


LOOK_S = 0.5
PIPE_SIZE = (100, 30)
"""Columns and rows where the output is no terminal."""


def print_once(watching: RunWatcher, out: TextIO, *, ascii: bool, color: bool) -> None:
    """The frame as text, and the end card of a run that is over."""
    watching.look()
    width, height = screen_size(out, PIPE_SIZE)
    if out.isatty():  # what is printed once may scroll
        height = max(height, PIPE_SIZE[1])
    lines = frame_lines(watching.state.snapshot(time.time()), width, height, ascii=ascii)
    painter = Painter(out, color=color)
    out.writelines(f"{painter.render(line).rstrip()}\n" for line in lines)
    if watching.is_over:
        _write_card(watching, out, width, ascii)


def follow_live(watching: RunWatcher, out: TextIO, *, ascii: bool, color: bool) -> None:
    """Show the frame, updated in place, until the run is over or the user leaves."""
    left, moved = threading.Event(), threading.Event()

    def pressed(key: str) -> None:
        if key in ("q", "Q"):
            left.set()
        else:
            watching.state.press(key)
        moved.set()

    painter, keys = Painter(out, color=color), KeyReader(pressed)
    seen, painted, size = None, 0.0, (0, 0)
    try:
        painter.open()
        if keys.open():
            watching.state.set(keys=True)
        while True:
            watching.look()
            mark, now_size = (id(watching.state), watching.state.version), screen_size(out)
            if mark != seen or size != now_size or time.monotonic() - painted >= 1.0:
                seen, painted, size = mark, time.monotonic(), now_size
                painter.paint(frame_lines(watching.state.snapshot(time.time()), *size, ascii=ascii), size)
            moved.wait(LOOK_S)
            moved.clear()
            if watching.is_over or left.is_set():
                break
    finally:
        keys.close()
        painter.close()
    if watching.is_over:
        _write_card(watching, out, screen_size(out)[0], ascii)


def follow_lines(watching: RunWatcher, out: TextIO, *, as_json: bool, ascii: bool, once: bool = False) -> None:
    """What was written so far, then every new line until the run is over (unless `once`); each line carries its own time."""
    clock = [watching.began]
    plain = PlainDisplay(out, ascii=ascii, now=lambda: clock[0])
    if not as_json:
        plain.start(watching.info)
    while True:
        for metrics in watching.look():
            clock[0] = seconds_of(metrics.get("at")) or time.time()
            if as_json:
                out.write(dump_line(metrics))
                continue
            if is_shown_step(metrics):
                plain.step(metrics)
            if is_evaluation(metrics):
                plain.evaluated(metrics)
        out.flush()
        if watching.is_over or once:
            break
        time.sleep(LOOK_S)
    if watching.is_over and not as_json:
        _write_card(watching, out, 100, ascii)


def _write_card(watching: RunWatcher, out: TextIO, width: int, ascii: bool) -> None:
    text = "".join(f"{line}\n" for line in ["", *card_lines(card_of(watching.folder), max(width - 1, 20))])
    text = visible_lines(text)
    out.write(as_ascii(text) if ascii else text)
    out.flush()
