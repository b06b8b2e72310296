"""Running decode steps. The eager form takes one step on exactly the rows that live; the captured form (cuda.py) takes
several on a bucket of rows, so that the host looks at the results only now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from grpo_cli.rollout.decoding.state import Batch, decode

if TYPE_CHECKING:
    from grpo_cli.rollout.decoding.rollout_mode import Forward


class Stepper(Protocol):
    """`steps` tokens a call; `width(rows)` is the number of rows a call for `rows` rows really computes;
    `refill_share` of the rows must be free before waiting samples start."""

    steps: int
    refill_share: float

    def width(self, rows: int) -> int:
        """At least `rows`."""

    def run(self, batch: Batch, rows: int, shortest: int, longest: int) -> None:
        """`steps` tokens for the first `rows` rows, whose next columns lie between `shortest` and `longest`."""


class EagerStepper:
    """One step a call, no row too many."""

    steps = 1
    refill_share = 1 / 8

    def __init__(self, forward: Forward) -> None:
        self.forward = forward

    def width(self, rows: int) -> int:
        """No row too many."""
        return rows

    def run(self, batch: Batch, rows: int, shortest: int, longest: int) -> None:
        """One step."""
        length = batch.store.reach(longest + 1, rows)
        # rows of one length see all columns; only then is there no mask to add
        masked = shortest + 1 < length
        decode(
            batch, self.forward, rows, length, masked=masked, column=longest if shortest == longest else None
        )
