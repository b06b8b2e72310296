"""The protocol of displays. A display reads records and metrics; it measures nothing itself and finds nothing.

All times are seconds; None is "not measured", shown as —.

Metric names a display knows besides those of `statistics.step`: `step`, `loss`, `lr`, `grad_norm`, `entropy` (over the rows
trained on), `kl`, `clip/low`, `clip/high`, `clip/total`, `memory/peak_gib`, `memory/total_gib`, `time/generate`, `time/verify`,
`time/environment`, `time/critic`, `time/update`, `time/step`, `tokens_per_s`, `mfu` (of the update), `eta_s`; and for evaluations `eval/pass@k`, `eval/pass@k/half`,
`eval/greedy`, `eval/greedy/half`, `eval/n`, `eval/seconds`, `eval/think`, `eval/best`.
"""

from __future__ import annotations

from typing import Protocol

from grpo_cli.display.frame.sample import SampleView
from grpo_cli.display.wishes import KeyRequests
from grpo_cli.run.info import Card, Level, Metrics, RunInfo


class Display(Protocol):
    """One face of a run; every method may be called from any thread, `close` any number of times."""

    def start(self, info: RunInfo) -> None:
        """The run is known and its folder exists."""

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """What the step is doing now: `generate`, `verify`, `update`, `evaluate`, `save`."""

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        """Long work outside a step (`load model`, `warm-up`); done == total ends it."""

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        """A step is over."""

    def evaluated(self, metrics: Metrics) -> None:
        """Held-out rows were scored."""

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """A sentence for the person; `good` for what was saved or reached."""

    def offer(self, wishes: KeyRequests) -> None:
        """From now on the person may ask for these; a display without keys has no use for them."""

    def finish(self, card: Card) -> None:
        """The run is over; the last thing said."""

    def close(self) -> None:
        """Give the terminal back as it was."""
