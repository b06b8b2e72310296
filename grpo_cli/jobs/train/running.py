"""The state that the parts of a run share once it has a folder: callbacks, evaluations and the end use this, not the
job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from grpo_cli.display.protocol import Display, KeyRequests
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.findings.stopping import StopRules
from grpo_cli.jobs.train.alarm_actions import AlarmActions
from grpo_cli.jobs.train.result import Stopwatch
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.interrupt import Interrupts
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import of_all_rows

if TYPE_CHECKING:
    from grpo_cli.jobs.train.trackers import Tracker
    from grpo_cli.train.prefer.rounds import RoundTrainer
    from grpo_cli.train.trainer import Trainer

    RunTrainer = Trainer | RoundTrainer


class WatchedPrompts(Protocol):
    """The interface of prompts that are measured at some steps; the class itself imports this module."""

    def is_due(self, step: int) -> bool: ...
    def measure(self, step: int) -> None: ...


@dataclass
class RunContext:
    """One run, or one rank's part of it. `device` is the device's name for the user; `trainer` is set after all
    checks."""

    recipe: Recipe
    folder: RunFolder
    display: Display
    ranks: Ranks
    interrupts: Interrupts
    stopwatch: Stopwatch
    device: str
    stop_rules: StopRules
    alarmed: AlarmActions
    evaluations: list[dict[str, Any]]
    wishes: KeyRequests = field(default_factory=KeyRequests)
    """The user's requests from the display; only on rank 0."""
    canary: WatchedPrompts | None = None
    canaries: list[dict[str, Any]] = field(default_factory=list)
    printed: Callable[[], Mapping[str, int]] = dict
    """Lines that each verifier's own code has printed so far."""
    trainer: RunTrainer | None = None
    trackers: Sequence[Tracker] = field(default_factory=list)

    def record(self, metrics: dict[str, Any]) -> None:
        """Write a measurement to the run's folder and its trackers."""
        self.folder.write_metrics(metrics)
        for tracker in self.trackers:
            tracker.send(metrics)

    @property
    def measured_whole(self) -> list[dict[str, Any]]:
        """The evaluations of all held-out rows: those that may be compared to choose a checkpoint."""
        return of_all_rows(self.evaluations)

    @property
    def trusted(self) -> list[dict[str, Any]]:
        """The lines that decide the best checkpoint: those with a gold score, else those of the canary."""
        return [*self.measured_whole, *self.canaries]
