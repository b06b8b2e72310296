"""What is known of each training row: its pass rate when last sampled, and for how long it has carried no signal.

"Dead" means every advantage of the group was 0 at that visit, so nothing was learned from it. Whether leaving dead
rows out pays depends on persistence: how often a row that was dead at its last visit is dead again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

DECAY = 0.5  # how much of older evidence a visit keeps in the Beta counts: policies move, so data go stale
WINDOW = 128  # visits to rows that were dead before, over which persistence is taken
ENOUGH = 32  # fewer say nothing


@dataclass(slots=True)
class LedgerEntry:
    """One row: visits, the share right at the last one, dead visits in a row, decayed Beta counts, last generation, and how
    hard it has pulled: the sum of |advantage| times tokens over all samples trained on."""

    visits: int = 0
    passed: float = 0.0
    dead: int = 0
    a: float = 1.0
    b: float = 1.0
    at: int = -1
    pull: float = 0.0


@dataclass(frozen=True, slots=True)
class Visit:
    """What a group said of its row."""

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

    def see(self, generation: int, visits: Sequence[Visit]) -> None:
        """Note the groups of a generation; one without a single verdict says nothing."""
        for visit in visits:
            if not visit.judged:
                continue
            entry = self.entries.setdefault(visit.row, LedgerEntry())
            if entry.dead:
                self.again.append(not visit.has_signal)
            entry.visits += 1
            entry.passed = visit.right / visit.judged
            entry.dead = 0 if visit.has_signal else entry.dead + 1
            entry.a = DECAY * entry.a + (1 - DECAY) + visit.right
            entry.b = DECAY * entry.b + (1 - DECAY) + visit.judged - visit.right
            entry.at = generation
            entry.pull += visit.pull

    def passed(self, row: int) -> float | None:
        """Share right at the last visit; None for a row never seen."""
        entry = self.entries.get(row)
        return entry.passed if entry else None

    def dead(self, row: int) -> int:
        """Visits in a row, up to the last, that carried no signal."""
        entry = self.entries.get(row)
        return entry.dead if entry else 0

    @property
    def persistence(self) -> float | None:
        """P(dead now | dead at the visit before) over the last such visits; None while they are too few."""
        return sum(self.again) / len(self.again) if len(self.again) >= ENOUGH else None

    def metrics(self) -> dict[str, float | None]:
        """Shares of all rows: seen; all right at the last visit; all wrong at the last two or more; persistence; and
        the share of all that was learned from so far (|advantage| times tokens) that the one hardest pulling row has."""
        seen, n = self.entries.values(), len(self.ids)
        pulls = [entry.pull for entry in seen]
        return {
            "rows/seen": len(self.entries) / n,
            "rows/solved": sum(e.passed == 1 and e.dead > 0 for e in seen) / n,
            "rows/impossible": sum(e.passed == 0 and e.dead > 1 for e in seen) / n,
            "rows/persistence": self.persistence,
            "rows/top_share": max(pulls) / math.fsum(pulls) if any(pulls) else None,
        }

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "rows": {
                self.ids[i]: [e.visits, e.passed, e.dead, e.a, e.b, e.at, e.pull]
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
