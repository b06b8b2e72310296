"""The history of each training row: its pass rate when last sampled, and for how long it has had no signal.

A row is "dead" if every advantage of its last group was 0, so that nothing was learned from it. Whether it pays to
leave dead rows out depends on persistence: how often a dead row is dead again when it is next sampled.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

DECAY = 0.5  # decay of the Beta counts at each new outcome: the policy changes, so old outcomes count less
WINDOW = 128  # number of recent outcomes of dead rows from which persistence is computed
ENOUGH = 32  # fewer show nothing


@dataclass(slots=True)
class LedgerEntry:
    """One row: how often it was sampled, its last pass rate, the number of consecutive dead outcomes, decayed Beta
    counts, the last step, and its pull: the sum of |advantage| times tokens over all samples trained on."""

    outcomes: int = 0
    pass_rate: float = 0.0
    dead_streak: int = 0
    alpha: float = 1.0
    beta: float = 1.0
    last_step: int = -1
    pull: float = 0.0


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """The outcome of a group for its row."""

    row: int
    right: int
    judged: int
    has_signal: bool
    pull: float = 0.0


@dataclass
class Ledger:
    """Entries by row index. They are saved by row id, so that rows may be added or reordered before a resume."""

    ids: Sequence[str]
    entries: dict[int, LedgerEntry] = field(default_factory=dict)
    again: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def update(self, step: int, outcomes: Sequence[RowOutcome]) -> None:
        """Record the groups of a step; a group without any verdict is ignored."""
        for outcome in outcomes:
            # a failing verifier gives no information about the row, and must not mark it dead
            if not outcome.judged:
                continue
            entry = self.entries.setdefault(outcome.row, LedgerEntry())
            if entry.dead_streak:
                self.again.append(not outcome.has_signal)
            entry.outcomes += 1
            entry.pass_rate = outcome.right / outcome.judged
            # update the streak only now: persistence above needs the previous one
            entry.dead_streak = 0 if outcome.has_signal else entry.dead_streak + 1
            # decay the old counts towards Beta(1, 1), then add the new ones
            entry.alpha = DECAY * entry.alpha + (1 - DECAY) + outcome.right
            entry.beta = DECAY * entry.beta + (1 - DECAY) + outcome.judged - outcome.right
            entry.last_step = step
            entry.pull += outcome.pull

    def pass_rate(self, row: int) -> float | None:
        """Share right when last sampled; None for a row that never was."""
        entry = self.entries.get(row)
        return entry.pass_rate if entry else None

    def dead_streak(self, row: int) -> int:
        """Number of consecutive outcomes without signal, up to the last."""
        entry = self.entries.get(row)
        return entry.dead_streak if entry else 0

    @property
    def persistence(self) -> float | None:
        """P(dead now | dead the time before), estimated from recent outcomes; None while there are too few."""
        return sum(self.again) / len(self.again) if len(self.again) >= ENOUGH else None

    def metrics(self) -> dict[str, float | None]:
        """Shares of all rows that were seen, were all right the last time, or all wrong the last two times or more;
        persistence; and the share of the row with the largest pull in the pull of all rows (|advantage| times
        tokens)."""
        seen, n = self.entries.values(), len(self.ids)
        pulls = [entry.pull for entry in seen]
        return {
            "rows/seen": len(self.entries) / n,
            "rows/solved": sum(e.pass_rate == 1 and e.dead_streak > 0 for e in seen) / n,
            "rows/impossible": sum(e.pass_rate == 0 and e.dead_streak > 1 for e in seen) / n,
            "rows/persistence": self.persistence,
            "rows/top_share": max(pulls) / math.fsum(pulls) if any(pulls) else None,
        }

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "rows": {
                self.ids[i]: [e.outcomes, e.pass_rate, e.dead_streak, e.alpha, e.beta, e.last_step, e.pull]
                for i, e in self.entries.items()
            },
            "again": list(self.again),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore from a checkpoint; rows that no longer exist are dropped."""
        place = {row_id: i for i, row_id in enumerate(self.ids)}
        self.entries = {
            place[row_id]: LedgerEntry(*values) for row_id, values in state["rows"].items() if row_id in place
        }
        self.again = deque(state["again"], maxlen=WINDOW)
