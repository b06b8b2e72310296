"""The data that a frame is drawn from: a snapshot of a run, maintained by `RunState` for both `train` and `watch`.

Only binned curves are kept of older steps, so a run of a million steps costs no more memory than one of 500.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from grpo_cli.display.frame.curves import Curves
from grpo_cli.display.frame.sample import GroupView, SampleView
from grpo_cli.run.info import Level, Metrics, RunInfo
from grpo_cli.statistics.step import as_drawn

RECENT_STEPS = 10
KEPT_NOTES = 6

SCROLLED = 3
"""Lines of a completion that one key moves."""

Filter = Literal["any", "wrong"]


@dataclass(frozen=True, slots=True)
class Activity:
    """The current activity, and its start (seconds of the state's clock)."""

    name: str
    since: float
    done: int | None = None
    total: int | None = None
    is_step: bool = True


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence with its time and step."""

    level: Level
    text: str
    hint: str
    at: float
    step: int | None


@dataclass(frozen=True, slots=True)
class FrameState:
    """Everything one frame shows. `first` is the first step's metrics, `recent` the last steps', newest last; `known` holds
    the last value of each metric that was ever measured, and `known_at` its step. `curves` are never changed."""

    info: RunInfo
    now: float
    began: float
    activity: Activity | None = None
    first: Metrics | None = None
    recent: tuple[Metrics, ...] = ()
    known: Metrics = field(default_factory=dict)
    known_at: Mapping[str, int] = field(default_factory=dict)
    curves: Curves = field(default_factory=Curves)
    evaluations: tuple[Metrics, ...] = ()
    notes: tuple[Note, ...] = ()
    view: SampleView | None = None
    group_index: int = 0
    sample_index: int = 0
    scroll: int = 0
    filter: Filter = "any"
    keys: bool = False
    help: bool = False
    ended: str = ""

    @property
    def last(self) -> Metrics:
        """The last step's metrics; empty before the first."""
        return self.recent[-1] if self.recent else {}

    @property
    def steps_shown(self) -> tuple[int, int]:
        """The first and the last step of the curves."""
        first = (self.first or {}).get("step") or 1
        return int(first), int(self.last.get("step") or first)

    @property
    def held_out(self) -> tuple[str, float] | None:
        """The metric by which held-out rows are scored, and its last value."""
        for metrics in reversed(self.evaluations):
            for key in ("eval/pass@1", "eval/greedy"):
                if metrics.get(key) is not None:
                    return key, float(metrics[key])
        return None

    def groups(self) -> list[GroupView]:
        """The groups to show: all, or only those with a wrong sample if this was asked for."""
        found = self.view.groups if self.view is not None else ()
        return [g for g in found if self.filter == "any" or g.right < g.judged]

    def group(self) -> GroupView | None:
        """The chosen one of the groups."""
        groups = self.groups()
        return groups[self.group_index % len(groups)] if groups else None


class RunState:
    """Collects what a run reports; every method may be called from any thread, `now` is the caller's clock."""

    def __init__(self, began: float, info: RunInfo | None = None) -> None:
        self._lock = threading.Lock()
        self._state = FrameState(info or RunInfo(""), began, began)
        self._recent: deque[Metrics] = deque(maxlen=RECENT_STEPS)
        self.version = 0

    def snapshot(self, now: float) -> FrameState:
        """The picture at this moment."""
        with self._lock:
            return replace(self._state, now=now)

    def set(self, *, info: RunInfo | None = None, ended: str = "", keys: bool = False) -> None:
        """Record the run when it is known, the status of its end, and whether keys are read (the frame then lists
        them)."""
        with self._lock:
            if info is not None:
                self._state = replace(self._state, info=info)
            if ended:
                self._state = replace(self._state, ended=ended, activity=None)
            self._state = replace(self._state, keys=keys or self._state.keys)
            self.version += 1

    def act(self, name: str, done: int | None, total: int | None, now: float, is_step: bool = True) -> None:
        """Record the current activity; its clock starts when the name changes."""
        with self._lock:
            before = self._state.activity
            since = before.since if before is not None and before.name == name else now
            activity = Activity(name, since, done, total, is_step)
            if activity != before:
                self._state = replace(self._state, activity=activity)
                self.version += 1

    def step(self, metrics: Metrics, view: SampleView | None) -> None:
        """Record a finished step; its scores are shown over all drawn samples."""
        metrics = dict(as_drawn(metrics))
        with self._lock:
            state = self._state
            curves = state.curves.copy()
            curves.add(metrics)
            self._recent.append(metrics)
            measured = {key: value for key, value in metrics.items() if value is not None}
            at = dict.fromkeys(measured, int(metrics.get("step") or 0))
            self._state = replace(
                state,
                first=state.first if state.first is not None else metrics,
                recent=tuple(self._recent),
                known={**state.known, **measured},
                known_at={**state.known_at, **at},
                curves=curves,
                view=view or state.view,
                activity=None,
            )
            self.version += 1

    def evaluated(self, metrics: Metrics) -> None:
        """Record an evaluation of held-out rows; one at the same step replaces the earlier numbers."""
        with self._lock:
            kept = tuple(m for m in self._state.evaluations if m.get("step") != metrics.get("step"))
            self._state = replace(self._state, evaluations=(*kept, dict(metrics)))
            self.version += 1

    def note(self, level: Level, text: str, hint: str, now: float) -> None:
        """Record a note; repeating the same text only updates its time."""
        with self._lock:
            step = self._recent[-1].get("step") if self._recent else None
            kept = [n for n in self._state.notes if n.text != text][-(KEPT_NOTES - 1) :]
            self._state = replace(self._state, notes=(*kept, Note(level, text, hint, now, step)))
            self.version += 1

    def press(self, key: str) -> None:
        """Handle a key that navigates groups, samples and their text; `READING` in `frame.py` lists these keys."""
        with self._lock:
            state = self._state
            changed: dict[str, Any] = {}
            if key == "?":
                changed = {"help": not state.help}
            elif key in ("n", "right"):
                changed = {"group_index": state.group_index + 1, "sample_index": 0, "scroll": 0}
            elif key in ("N", "left"):
                changed = {"group_index": max(state.group_index - 1, 0), "sample_index": 0, "scroll": 0}
            elif key == "g":
                changed = {"group_index": 0, "sample_index": 0, "scroll": 0, "filter": "any"}
            elif key == "w":
                other: Filter = "any" if state.filter == "wrong" else "wrong"
                changed = {"group_index": 0, "sample_index": 0, "scroll": 0, "filter": other}
            elif key in ("j", "down", "k", "up"):
                group = state.group()
                most = len(group.lines) - 1 if group is not None else 0
                moved = state.sample_index + (1 if key in ("j", "down") else -1)
                changed = {"sample_index": min(max(moved, 0), most), "scroll": 0}
            elif key in ("u", "page up"):
                changed = {"scroll": state.scroll + SCROLLED}
            elif key in ("d", "page down"):
                changed = {"scroll": max(state.scroll - SCROLLED, 0)}
            elif state.help:
                changed = {"help": False}
            self._state = replace(state, **changed)
            self.version += 1
