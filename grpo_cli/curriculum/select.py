"""Chooses the rows of the next rollout. This happens in the rollout hook, after the last batch was judged, so the
history is up to date.

TRL's own sampler is not used: it draws a batch ahead, and repeats epoch 0's order after a resume. Choosing by history
helps if rows without signal stay so, and hurts if they soon have signal again; `auto` measures this (persistence).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any

from grpo_cli.curriculum.ads import Ads
from grpo_cli.curriculum.ledger import Ledger, RowOutcome
from grpo_cli.curriculum.strategies import Auto, EasyToHard, Greso, Mopps, Order, Priority, Screen, Uniform

SELECTORS: dict[str, type[Uniform]] = {
    "uniform": Uniform,
    "auto": Auto,
    "greso": Greso,
    "mopps": Mopps,
    "priority": Priority,
    "screen": Screen,
    "easy_to_hard": EasyToHard,
    "ads": Ads,
}
"""Every strategy by the name that `train.select` takes."""


class Selection:
    """The rows of a run: their ledger, their order, and the strategy that `train.select` names."""

    def __init__(self, name: str, ids: Sequence[str], seed: int, strategy: Uniform | None = None) -> None:
        """`strategy`: the strategy object, if it needs more than its defaults; otherwise it is made by name."""
        self.name, self.seed = name, seed
        self.ledger, self.order = Ledger(ids), Order(len(ids), seed)
        self.strategy = strategy or SELECTORS[name]()

    @property
    def screens(self) -> bool:
        """Whether rows are screened, that is sampled with half a group first."""
        return isinstance(self.strategy, Screen)

    def choose(self, step: int, n: int, exclude: Collection[int] = ()) -> list[int]:
        """Up to `n` different rows for this step, without `exclude`, which were already sampled in it.

        The random choice depends on the seed, the step and the number of rows already sampled in it, so a resumed run
        chooses the same rows.
        """
        # seed with a text: `random` hashes it itself, independent of PYTHONHASHSEED
        rng = random.Random(f"{self.seed}/{step}/{len(exclude)}")
        return self.strategy.pick(self.ledger, self.order, rng, n, exclude)

    def update(self, step: int, outcomes: Sequence[RowOutcome]) -> None:
        """Record the outcome of every sampled group for its row."""
        self.ledger.update(step, outcomes)
        self.strategy.update(self.ledger, outcomes)

    def metrics(self) -> dict[str, Any]:
        """The ledger's shares, whether history currently decides, and the strategy's own metrics."""
        found: dict[str, Any] = self.ledger.metrics()
        by_history = float(getattr(self.strategy, "is_on", self.name != "uniform"))
        return found | {"rows/by_history": by_history} | self.strategy.metrics()

    def order_state(self) -> dict[str, Any]:
        """What `choose` moves on."""
        return {"drawn": self.order.drawn, "strategy": self.strategy.state()}

    def roll_back(self, state: dict[str, Any]) -> None:
        """Undo all choices since this state was saved."""
        self.order.drawn = state["drawn"]
        self.strategy.load_state(state["strategy"])

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return self.order_state() | {"ledger": self.ledger.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Back from a checkpoint."""
        self.roll_back(state)
        self.ledger.load_state(state["ledger"])
