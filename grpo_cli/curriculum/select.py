"""Which rows the next draw uses. Chosen inside the generation hook, after the last batch was judged: no lag.

TRL's own sampler draws a generation ahead and replays epoch 0's order after a resume; it is not used. History pays
where useless rows stay useless and costs where they soon stop being so: `auto` measures which it is (persistence).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from grpo_cli.curriculum.ledger import Ledger, Visit


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
            random.Random(f"{self.seed}/{epoch}").shuffle(self._order)
        self.drawn += 1
        return self._order[place]

    def take(self, n: int, taken: Collection[int] = ()) -> list[int]:
        """The next `n` rows not in `taken`; the rest of an epoch that is too small for them is dropped."""
        n = min(n, self.n_rows - len(taken))
        left = self.n_rows - self.drawn % self.n_rows
        if left < n:
            self.drawn += left
        found: list[int] = []
        while len(found) < n:
            row = self.next()
            if row not in taken and row not in found:
                found.append(row)
        return found


class Strategy(Protocol):
    """A way to pick rows by what is known of them."""

    def pick(
        self, ledger: Ledger, order: Order, rng: random.Random, n: int, taken: Collection[int]
    ) -> list[int]:
        """`n` different rows, none of `taken`; fewer only where no others are left."""

    def see(self, ledger: Ledger, visits: Sequence[Visit]) -> None:
        """What came of a draw; the ledger has it already."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Back from a checkpoint."""


class Uniform:
    """Every row once an epoch, in a new order each epoch."""

    def pick(
        self, ledger: Ledger, order: Order, rng: random.Random, n: int, taken: Collection[int]
    ) -> list[int]:
        return order.take(n, taken)

    def see(self, ledger: Ledger, visits: Sequence[Visit]) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        pass


class Selection:
    """The rows of a run: their ledger, their order, and the strategy that `train.select` names."""

    def __init__(self, name: str, ids: Sequence[str], seed: int) -> None:
        self.name, self.seed = name, seed
        self.ledger, self.order = Ledger(ids), Order(len(ids), seed)
        self.strategy: Strategy = strategies()[name]()

    @property
    def screens(self) -> bool:
        """Whether rows are tried with half a group first."""
        return isinstance(self.strategy, Screen)

    def choose(self, generation: int, n: int, taken: Collection[int] = ()) -> list[int]:
        """Up to `n` different rows for a draw of this generation; `taken` ones were drawn in it before.

        Chance depends on the seed, the generation and how much was drawn in it, so a resumed run chooses the same.
        """
        rng = random.Random(f"{self.seed}/{generation}/{len(taken)}")
        return self.strategy.pick(self.ledger, self.order, rng, n, taken)

    def see(self, generation: int, visits: Sequence[Visit]) -> None:
        """Note what every drawn group said of its row."""
        self.ledger.see(generation, visits)
        self.strategy.see(self.ledger, visits)

    def metrics(self) -> dict[str, Any]:
        """The ledger's shares, and whether history decides at present."""
        found: dict[str, Any] = self.ledger.metrics()
        return found | {"rows/by_history": float(getattr(self.strategy, "is_on", self.name != "uniform"))}

    def place(self) -> dict[str, Any]:
        """What `choose` moves on."""
        return {"drawn": self.order.drawn, "strategy": self.strategy.state()}

    def go_back(self, place: dict[str, Any]) -> None:
        """As if nothing had been chosen since."""
        self.order.drawn = place["drawn"]
        self.strategy.load_state(place["strategy"])

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return self.place() | {"ledger": self.ledger.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Back from a checkpoint."""
        self.go_back(state)
        self.ledger.load_state(state["ledger"])


class Screen(Uniform):
    """SPEED (arXiv 2506.09016): twice as many rows are tried with half a group; those nearest one half get the rest.

    Costs half a group for every row that is turned away; pays where rows are seen once and history cannot help.
    """


def strategies() -> dict[str, type[Strategy]]:
    """Every strategy by the name that `train.select` knows."""
    from grpo_cli.curriculum.strategies import Auto, EasyToHard, Greso, Mopps, Priority

    return {
        "uniform": Uniform,
        "auto": Auto,
        "greso": Greso,
        "mopps": Mopps,
        "priority": Priority,
        "screen": Screen,
        "easy_to_hard": EasyToHard,
    }
