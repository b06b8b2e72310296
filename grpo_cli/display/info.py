"""The protocol of displays and the records they are given. All times are seconds; None is "not measured", shown as —.

Metric names a display knows besides those of `stats.py`: `step`, `loss`, `lr`, `grad_norm`, `entropy` (over the rows trained on), `kl`, `clip/low`,
`clip/high`, `clip/total`, `memory/peak_gib`, `memory/total_gib`, `time/generate`, `time/verify`, `time/update`, `time/step`,
`tokens_per_s`, `eta_s`, `reuse/tokens`; and for evaluations `eval/pass@k`, `eval/pass@k/half`, `eval/greedy`, `eval/greedy/half`, `eval/n`,
`eval/seconds`, `eval/think`, `eval/best`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from grpo_cli.display.frame.sample import SampleView

Metrics = Mapping[str, Any]
Level = Literal["info", "good", "warn", "error"]
Status = Literal["done", "stopped", "paused", "rolled_back", "interrupted", "failed"]
"""How a run ended."""


@dataclass(frozen=True, slots=True)
class Source:
    """A part of the reward and its weight; verifiers first, then shaping terms."""

    name: str
    weight: float = 1.0
    primary: bool = False


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is known before the first step."""

    run: str
    recipe: str = ""
    sha: str = ""
    model: str = ""
    folder: str = ""
    log: str = ""
    device: str = ""
    steps: int = 0
    start_step: int = 0
    prompts: int = 0
    group: int = 0
    max_tokens: int | None = None
    seed: int | None = None
    sources: tuple[Source, ...] = ()
    command: str = "train"


@dataclass(frozen=True, slots=True)
class Card:
    """The end of a run. `history` and `evaluations` are the lines of `metrics.jsonl`; the card's numbers come from them."""

    status: Status
    wall_s: float
    history: tuple[Metrics, ...] = ()
    evaluations: tuple[Metrics, ...] = ()
    device: str = ""
    reason: str = ""
    best: str = ""
    report: str = ""
    evidence: str = ""
    """The file behind the alarm that ended the run."""
    next: str = ""
    """The command to go on with; `other` is another one."""
    other: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase over the whole run; where empty, the sums of `time/…` in `history`."""


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

    def finish(self, card: Card) -> None:
        """The run is over; the last thing said."""

    def close(self) -> None:
        """Give the terminal back as it was."""
