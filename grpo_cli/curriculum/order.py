"""The order of rows, and what a strategy that departs from it has to be able to do."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from grpo_cli.curriculum.ledger import Ledger, RowOutcome


class Order:
    """Every row once an epoch, in an order of its own each epoch. A position is all there is to save."""

    def __init__(self, n_rows: int, seed: int) -> None:
        self.n_rows, self.seed, self.drawn = n_rows, seed, 0
        self._epoch, self._order = -1, list[int]()

    def next(self) -> int:
        """The next row of the endless sequence of epochs."""
        epoch, place = divmod(self.drawn, self.n_rows)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(self.n_rows))
            # of seed and epoch alone: after a resume the order is made again, not read
            random.Random(f"{self.seed}/{epoch}").shuffle(self._order)
        self.drawn += 1
        return self._order[place]

    def take(self, n: int, exclude: Collection[int] = ()) -> list[int]:
        """The next `n` rows not in `exclude`; the rest of an epoch that is too small for them is dropped."""
        n = min(n, self.n_rows - len(exclude))
        left = self.n_rows - self.drawn % self.n_rows
        if left < n:
            # else a batch could meet a row of the new epoch that it has already, and take fewer
            self.drawn += left
        found: list[int] = []
        while len(found) < n:
            row = self.next()
            if row not in exclude and row not in found:
                found.append(row)
        return found


class Strategy(Protocol):
    """A way to pick rows by what is known of them."""

    def pick(
        self, ledger: Ledger, order: Order, rng: random.Random, n: int, exclude: Collection[int]
    ) -> list[int]:
        """`n` different rows, none of `exclude`; fewer only where no others are left."""

    def update(self, ledger: Ledger, outcomes: Sequence[RowOutcome]) -> None:
        """What came of a draw; the ledger has it already."""

    def metrics(self) -> dict[str, float]:
        """What it knows after a step."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Back from a checkpoint."""


class Uniform:
    """Every row once an epoch, in a new order each epoch."""

    def pick(
        self, ledger: Ledger, order: Order, rng: random.Random, n: int, exclude: Collection[int]
    ) -> list[int]:
        return order.take(n, exclude)

    def update(self, ledger: Ledger, outcomes: Sequence[RowOutcome]) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        pass


class Screen(Uniform):
    """SPEED (arXiv 2506.09016): twice as many rows are tried with half a group; those nearest one half get the rest.

    Costs half a group for every row that is turned away; pays where rows are seen once and history cannot help.
    """
