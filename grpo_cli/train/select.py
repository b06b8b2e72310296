"""Which rows the next generation uses. Chosen inside the generation hook, so there is no lag.

TRL's own sampler draws a generation ahead and replays epoch 0's order after a resume; it is not used.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Uniform:
    """Every row once an epoch, in an order of its own each epoch; a rest smaller than one batch is dropped.

    Stateless: the choice is a function of (seed, generation), so a resumed run sees the same rows.
    """

    n_rows: int
    prompts: int
    seed: int

    def choose(self, generation: int) -> list[int]:
        """Indices of the rows of this generation (counted from 0)."""
        batches = self.n_rows // self.prompts
        epoch, batch = divmod(generation, batches)
        order = list(range(self.n_rows))
        random.Random(f"{self.seed}/{epoch}").shuffle(order)
        return order[batch * self.prompts : (batch + 1) * self.prompts]
