"""The protocol of displays. A display shows records and metrics; it measures nothing itself and looks for no problems.

All times are seconds; None is "not measured", shown as —.

Metric names that a display shows, besides those of `statistics.step`: `step`, `loss`, `lr`, `grad_norm`, `entropy`
(over the rows trained on), `kl`, `clip/low`, `clip/high`, `clip/total`, `memory/peak_gib`, `memory/total_gib`,
`time/generate`, `time/verify`, `time/environment`, `time/critic`, `time/update`, `time/step`, `tokens_per_s`, `mfu` (of
the update), `eta_s`; and for evaluations `eval/pass@k`, `eval/pass@k/half`, `eval/greedy`, `eval/greedy/half`,
`eval/n`, `eval/seconds`, `eval/think`, `eval/best`.
"""

from __future__ import annotations

import threading
from typing import Protocol

from grpo_cli.display.frame.sample import SampleView
from grpo_cli.run.info import Card, Level, Metrics, RunInfo


class KeyRequests:
    """The requests that a user made by keys during a run: pause, save, evaluate.

    The display's thread records them; the trainer's thread reads them between two steps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._once: set[str] = set()
        self.is_paused = False
        """Whether the run should wait before its next step."""

    def press(self, key: str) -> str | None:
        """Record a key; returns the text to show, or None for a key without a function here."""
        with self._lock:
            if key == "p":
                self.is_paused = not self.is_paused
                return "pausing after this step; p goes on" if self.is_paused else "going on"
            if key == "s":
                self._once.add("save")
                return "saving after this step"
            if key == "e":
                self._once.add("evaluate")
                return "measuring the held-out rows after this step"
        return None

    def take(self) -> frozenset[str]:
        """The requests since the last call: `save`, `evaluate`, both or neither."""
        with self._lock:
            taken, self._once = frozenset(self._once), set()
            return taken


class Display(Protocol):
    """A display of a run. The methods do nothing; displays derive from this class and override them.

    Every method may be called from any thread, `close` any number of times.
    """

    def start(self, info: RunInfo) -> None:
        """The run is known and its folder exists."""
        return None

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """What the step is doing now: `generate`, `verify`, `update`, `evaluate`, `save`."""
        return None

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        """Long work outside a step (`load model`, `warm-up`); done == total ends it."""
        return None

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        """A step is over."""
        return None

    def evaluated(self, metrics: Metrics) -> None:
        """Held-out rows were scored."""
        return None

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """A sentence for the person; `good` for what was saved or reached."""
        return None

    def offer(self, wishes: KeyRequests) -> None:
        """Accept these requests from now on; a display without keys ignores them."""
        return None

    def finish(self, card: Card) -> None:
        """The run is over; the last thing shown."""
        return None

    def close(self) -> None:
        """Give the terminal back as it was."""
        return None
