"""What is known of each training row: its pass rate when last sampled, and for how long it has carried no signal.

"Dead" means every advantage of the group was 0 that time, so nothing was learned from it. Whether leaving dead
rows out pays depends on persistence: how often a row that was dead when last sampled is dead again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

DECAY = 0.5  # how much of older evidence a new outcome keeps in the Beta counts: policies move, so data go stale
WINDOW = 128  # outcomes of rows that were dead before, over which persistence is taken
ENOUGH = 32  # fewer show nothing


@dataclass(slots=True)
class LedgerEntry:
    """One row: how often it was sampled, the share right the last time, dead outcomes in a row, decayed Beta counts, the last
    step, and how hard it has pulled: the sum of |advantage| times tokens over all samples trained on."""

    outcomes: int = 0
    pass_rate: float = 0.0
    dead_streak: int = 0
    alpha: float = 1.0
    beta: float = 1.0
    last_step: int = -1
    pull: float = 0.0


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """What a group showed of its row."""

    row: int
    right: int
    judged: int
    has_signal: bool
    pull: float = 0.0


@dataclass
class Ledger:
    """Entries by row index; saved by row id, so that rows may be added or reordered before a resume."""

    ids: Sequence[str]
    entries: dict[int, LedgerEntry] = field(default_factory=dict)
    again: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def update(self, step: int, outcomes: Sequence[RowOutcome]) -> None:
        """Note the groups of a step; one without a single verdict shows nothing."""
        for outcome in outcomes:
            # a verifier that fails shows nothing of the row, and must not make it dead
            if not outcome.judged:
                continue
            entry = self.entries.setdefault(outcome.row, LedgerEntry())
            if entry.dead_streak:
                self.again.append(not outcome.has_signal)
            entry.outcomes += 1
            entry.pass_rate = outcome.right / outcome.judged
            # after persistence was noted above, which needs the streak of before
            entry.dead_streak = 0 if outcome.has_signal else entry.dead_streak + 1
            # old evidence is halved towards Beta(1, 1), then the new counts come on top
            entry.alpha = DECAY * entry.alpha + (1 - DECAY) + outcome.right
            entry.beta = DECAY * entry.beta + (1 - DECAY) + outcome.judged - outcome.right
            entry.last_step = step
            entry.pull += outcome.pull

    def pass_rate(self, row: int) -> float | None:
        """Share right when last sampled; None for a row that never was."""
        entry = self.entries.get(row)
        return entry.pass_rate if entry else None

    def dead_streak(self, row: int) -> int:
        """Outcomes in a row, up to the last, that carried no signal."""
        entry = self.entries.get(row)
        return entry.dead_streak if entry else 0

    @property
    def persistence(self) -> float | None:
        """P(dead now | dead the time before) over the last such outcomes; None while they are too few."""
        return sum(self.again) / len(self.again) if len(self.again) >= ENOUGH else None

    def metrics(self) -> dict[str, float | None]:
        """Shares of all rows: seen; all right the last time; all wrong the last two or more; persistence; and
        the share of all that was learned from so far (|advantage| times tokens) that the one hardest pulling row has."""
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
        """Back from a checkpoint; rows that are gone are forgotten."""
        place = {row_id: i for i, row_id in enumerate(self.ids)}
        self.entries = {
            place[row_id]: LedgerEntry(*values) for row_id, values in state["rows"].items() if row_id in place
        }
        self.again = deque(state["again"], maxlen=WINDOW)
