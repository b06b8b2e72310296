"""What a frame is drawn from: an immutable picture of a run, kept by `RunState` and the same for `train` and `watch`.

Only displayed metrics are kept for the last steps, so a run of a million steps costs a display no more than one of 300.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Literal

from grpo_cli.display.frame.sample import GroupView, SampleView
from grpo_cli.run.info import Level, Metrics, RunInfo
from grpo_cli.statistics.drawn import as_drawn

KEPT_STEPS = 240
KEPT_NOTES = 2
NOT_DRAWN = ("verify/", "group/hist/")
"""Of older steps these many-keyed families are dropped; curves are not drawn of them."""

Filter = Literal["any", "wrong"]


@dataclass(frozen=True, slots=True)
class Activity:
    """What is being done now, and since when (seconds of the state's clock)."""

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
    """Everything one frame shows. `first` is the first step's metrics, `history` the last steps', newest last."""

    info: RunInfo
    now: float
    began: float
    activity: Activity | None = None
    first: Metrics | None = None
    history: tuple[Metrics, ...] = ()
    evaluations: tuple[Metrics, ...] = ()
    notes: tuple[Note, ...] = ()
    view: SampleView | None = None
    group_index: int = 0
    filter: Filter = "any"
    keys: bool = False
    ended: str = ""

    @property
    def last(self) -> Metrics:
        """The last step's metrics; empty before the first."""
        return self.history[-1] if self.history else {}

    def group(self) -> GroupView | None:
        """The group to show: the chosen one, among those with a wrong sample where only these are wanted."""
        if self.view is None or not self.view.groups:
            return None
        groups = [g for g in self.view.groups if self.filter == "any" or g.right < g.judged]
        return groups[self.group_index % len(groups)] if groups else None

    def curve(self, key: str) -> list[float | None]:
        """A metric over the kept steps."""
        return [m.get(key) for m in self.history]

    def recent_mean(self, key: str, steps: int = 10) -> float | None:
        """The mean of a metric over the last steps that measured it."""
        values = [v for m in self.history[-steps:] if (v := m.get(key)) is not None]
        return sum(values) / len(values) if values else None


class RunState:
    """Collects what a run says; every method may be called from any thread, `now` is the caller's clock."""

    def __init__(self, began: float) -> None:
        self._lock = threading.Lock()
        self._state = FrameState(RunInfo(""), began, began)
        self._history: deque[Metrics] = deque(maxlen=KEPT_STEPS)
        self.version = 0

    def snapshot(self, now: float) -> FrameState:
        """The picture at this moment."""
        with self._lock:
            return replace(self._state, now=now, history=tuple(self._history))

    def start(self, info: RunInfo) -> None:
        """The run is known."""
        self._set(info=info)

    def act(self, name: str, done: int | None, total: int | None, now: float, is_step: bool = True) -> None:
        """Something is being done; its clock starts where its name changes."""
        with self._lock:
            before = self._state.activity
            since = before.since if before is not None and before.name == name else now
            activity = Activity(name, since, done, total, is_step)
            if activity != before:
                self._state = replace(self._state, activity=activity)
                self.version += 1

    def step(self, metrics: Metrics, view: SampleView | None) -> None:
        """A step is over; its scores are shown of all that was drawn."""
        metrics = as_drawn(metrics)
        with self._lock:
            if self._history:
                self._history[-1] = _thinned(self._history[-1])
            self._history.append(dict(metrics))
            first = self._state.first if self._state.first is not None else dict(metrics)
            self._state = replace(self._state, first=first, view=view or self._state.view, activity=None)
            self.version += 1

    def evaluated(self, metrics: Metrics) -> None:
        """Held-out rows were scored; the same step replaces its earlier numbers."""
        with self._lock:
            kept = tuple(m for m in self._state.evaluations if m.get("step") != metrics.get("step"))
            self._state = replace(self._state, evaluations=(*kept, dict(metrics)))
            self.version += 1

    def note(self, level: Level, text: str, hint: str, now: float) -> None:
        """A sentence for the person; the same text again only renews its time."""
        with self._lock:
            step = self._history[-1].get("step") if self._history else None
            kept = [n for n in self._state.notes if n.text != text][-(KEPT_NOTES - 1) :]
            self._state = replace(self._state, notes=(*kept, Note(level, text, hint, now, step)))
            self.version += 1

    def end(self, status: str) -> None:
        """The run is over."""
        self._set(ended=status, activity=None)

    def press(self, key: str) -> None:
        """A key of the person: `n` next group, `g` back to the first, `w` wrong ones only, on and off."""
        with self._lock:
            state = self._state
            if key == "n":
                self._state = replace(state, group_index=state.group_index + 1)
            elif key == "g":
                self._state = replace(state, group_index=0, filter="any")
            elif key == "w":
                self._state = replace(
                    state, group_index=0, filter="any" if state.filter == "wrong" else "wrong"
                )
            self.version += 1

    def allow_keys(self) -> None:
        """Keys are read, so the frame may name them."""
        self._set(keys=True)

    def _set(self, **values: Any) -> None:
        with self._lock:
            self._state = replace(self._state, **values)
            self.version += 1


def _thinned(metrics: Metrics) -> Metrics:
    return {key: value for key, value in metrics.items() if not key.startswith(NOT_DRAWN)}
