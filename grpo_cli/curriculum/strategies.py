"""Strategies that choose rows by their history, so that fewer samples go to rows that are solved or impossible.

Each strategy occasionally samples rows that it considers useless, because the policy changes and the ledger becomes
outdated. A row never seen is treated like one with a pass rate of one half.

How this works: `Order` is the uniform order that every strategy falls back to. A strategy is `Uniform` or a class below it: it picks
rows from the ledger and the order before a step, gets the outcomes after it, and saves what the ledger does not hold.
`select.py` has the table of names.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Sequence
from typing import Any

from grpo_cli.curriculum.ledger import Ledger, RowOutcome


class Order:
    """Every row once an epoch, in a new order each epoch. Only a position has to be saved."""

    def __init__(self, n_rows: int, seed: int) -> None:
        self.n_rows, self.seed, self.drawn = n_rows, seed, 0
        self._epoch, self._order = -1, list[int]()

    def next(self) -> int:
        """The next row of the endless sequence of epochs."""
        epoch, place = divmod(self.drawn, self.n_rows)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(self.n_rows))
            # depends on seed and epoch alone: after a resume the order is recomputed, not read
            random.Random(f"{self.seed}/{epoch}").shuffle(self._order)
        self.drawn += 1
        return self._order[place]

    def take(self, n: int, exclude: Collection[int] = ()) -> list[int]:
        """The next `n` rows not in `exclude`; if fewer are left in the epoch, these are dropped."""
        n = min(n, self.n_rows - len(exclude))
        left = self.n_rows - self.drawn % self.n_rows
        if left < n:
            # otherwise the new epoch could repeat a row of this batch, and the batch would have fewer rows
            self.drawn += left
        found: list[int] = []
        while len(found) < n:
            row = self.next()
            if row not in exclude and row not in found:
                found.append(row)
        return found


class Uniform:
    """Every row once an epoch, in a new order each epoch."""

    saved: tuple[str, ...] = ()
    """Attributes of a strategy that a checkpoint keeps."""

    def pick(self, ledger: Ledger, order: Order, rng: random.Random, n: int, exclude: Collection[int]) -> list[int]:
        """`n` different rows that are not in `exclude`; fewer only if no others are left."""
        return order.take(n, exclude)

    def update(self, ledger: Ledger, outcomes: Sequence[RowOutcome]) -> None:
        """Take the outcomes of a draw, which the ledger has already recorded."""

    def metrics(self) -> dict[str, float]:
        """Numbers of the strategy after a step, by metric name."""
        return {}

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, a copy that later draws do not change."""
        return {name: copy.copy(getattr(self, name)) for name in self.saved}

    def load_state(self, state: dict[str, Any]) -> None:
        """Back from a checkpoint."""
        for name in self.saved:
            setattr(self, name, copy.copy(state[name]))


class Screen(Uniform):
    """SPEED (arXiv 2506.09016): twice as many rows are tried with half a group; those nearest one half get the rest.

    Costs half a group for every row that is turned away; pays where rows are seen once and history cannot help.
    """


def weighted_sample(rng: random.Random, weights: dict[int, float], n: int) -> list[int]:
    """Up to `n` different keys of positive weight, drawn one after another in proportion (Efraimidis-Spirakis)."""
    # the largest keys are a weighted draw without replacement: one number a row, whatever `n`
    keys = {row: rng.random() ** (1 / w) for row, w in weights.items() if w > 0}
    return sorted(keys, key=lambda row: -keys[row])[:n]


def variance(passed: float | None) -> float:
    """p(1-p), the variance of a right or wrong answer; a row never seen counts as p = 1/2."""
    return 0.25 if passed is None else passed * (1 - passed)


class Priority(Uniform):
    """Rows in proportion to p(1-p) when last sampled (after PR-GRPO, arXiv 2601.02648), and some to be retested.

    An eighth of each draw goes to the rows not looked at for longest, whatever they were.
    """

    retest = 1 / 8

    def pick(self, ledger: Ledger, order: Order, rng: random.Random, n: int, exclude: Collection[int]) -> list[int]:
        rows = [row for row in range(order.n_rows) if row not in exclude]
        seen = [row for row in rows if row in ledger.entries]
        stale = sorted(seen, key=lambda row: (ledger.entries[row].last_step, row))
        retested = stale[: int(n * self.retest)]
        # p (1 - p) is the variance of a right-or-wrong reward: a group with equal rewards has no signal
        weights = {row: variance(ledger.pass_rate(row)) for row in rows if row not in retested}
        chosen = retested + weighted_sample(rng, weights, n - len(retested))
        rest = [row for row in stale if row not in chosen]
        return chosen + rest[: n - len(chosen)]


TARGETS = {"easy": 1 / 12, "hard": 1 / 6}


class Greso(Uniform):
    """GRESO (arXiv 2506.02177): rows in uniform order, one that was dead z times running skipped with 1 - max(q^z, .01).

    q is kept apart for easy and hard dead rows and moves by .01 a draw inside [.05, .95], so that a quarter of the
    groups stay dead: a twelfth all right, a sixth all wrong.
    """

    saved = ("q",)

    def __init__(self) -> None:
        self.q = {"easy": 0.5, "hard": 0.5}

    def pick(self, ledger: Ledger, order: Order, rng: random.Random, n: int, exclude: Collection[int]) -> list[int]:
        n = min(n, order.n_rows - len(exclude))
        chosen: list[int] = []
        passed_over: list[int] = []
        # three passes at most: if nearly all rows are skipped, the batch is filled below
        for _ in range(3 * order.n_rows):
            if len(chosen) == n:
                return chosen
            row = order.next()
            if row in exclude or row in chosen:
                continue
            if rng.random() < skip_chance(self.q[dead_kind(ledger, row)], ledger.dead_streak(row)):
                passed_over.append(row)
            else:
                chosen.append(row)
        spare = [row for row in dict.fromkeys(passed_over) if row not in chosen]
        return chosen + spare[: n - len(chosen)]

    def update(self, ledger: Ledger, outcomes: Sequence[RowOutcome]) -> None:
        for name, target in TARGETS.items():
            # the ledger has already recorded these outcomes, so its rate is that of this step
            dead = sum(not v.has_signal and dead_kind(ledger, v.row) == name for v in outcomes)
            # a lower q skips more
            move = -0.01 if outcomes and dead / len(outcomes) > target else 0.01
            self.q[name] = min(max(self.q[name] + move, 0.05), 0.95)


def skip_chance(q: float, dead: int) -> float:
    """The probability that GRESO skips a row with this many consecutive dead outcomes."""
    # at most 99 %: the policy changes, so the row must be sampled again at some time
    return 1 - max(q**dead, 0.01)


def dead_kind(ledger: Ledger, row: int) -> str:
    """`easy` for a dead row whose answers were all right, `hard` for one whose answers were all wrong."""
    return "easy" if (ledger.pass_rate(row) or 0.0) >= 0.5 else "hard"


class Mopps(Uniform):
    """MoPPS (arXiv 2507.04632): a pass rate drawn from each candidate's Beta; the rows nearest one half are taken."""

    candidates = 16

    def pick(self, ledger: Ledger, order: Order, rng: random.Random, n: int, exclude: Collection[int]) -> list[int]:
        rows = [row for row in range(order.n_rows) if row not in exclude]
        # Thompson sampling over a pool: a draw from each posterior, so that uncertain rows are sampled occasionally
        pool = rng.sample(rows, min(len(rows), self.candidates * n))
        drawn = {}
        for row in pool:
            entry = ledger.entries.get(row)
            drawn[row] = rng.betavariate(entry.alpha, entry.beta) if entry else rng.random()
        return sorted(pool, key=lambda row: abs(drawn[row] - 0.5))[:n]


class EasyToHard(Uniform):
    """Every row once an epoch, the easiest first: by pass rate when last seen; the first epoch is in uniform order."""

    saved = ("queue",)

    def __init__(self) -> None:
        self.queue: list[int] = []

    def pick(self, ledger: Ledger, order: Order, rng: random.Random, n: int, exclude: Collection[int]) -> list[int]:
        n = min(n, order.n_rows - len(exclude))
        if len([row for row in self.queue if row not in exclude]) < n:
            # a stable sort of a shuffled epoch: rows of equal difficulty come in a new order each time
            mixed = [order.next() for _ in range(order.n_rows)]
            self.queue = sorted(mixed, key=lambda row: -(ledger.pass_rate(row) or 0.0))
        chosen = [row for row in self.queue if row not in exclude][:n]
        self.queue = [row for row in self.queue if row not in chosen]
        return chosen


class Auto(Uniform):
    """Uniform until dead rows prove to stay dead (persistence above .7), then in proportion to what a row promises.

    Choosing by history lost where persistence was below .45 and won from .82 on (`bench/bench_race.py` and a tabular race).
    A live row promises p(1-p); one dead z times running a tenth of .25, halved with each further one, so that all
    rows are seen again some day. Back to uniform where persistence falls under .5, a lower bar because the dead rows
    that are still sampled are the doubtful ones.
    """

    saved = ("is_on",)
    on_at, off_at = 0.7, 0.5

    def __init__(self) -> None:
        self.is_on = False

    def pick(self, ledger: Ledger, order: Order, rng: random.Random, n: int, exclude: Collection[int]) -> list[int]:
        if not self.is_on:
            return order.take(n, exclude)
        rows = [row for row in range(order.n_rows) if row not in exclude]
        return weighted_sample(rng, {row: row_weight(ledger, row) for row in rows}, n)

    def update(self, ledger: Ledger, outcomes: Sequence[RowOutcome]) -> None:
        persistence = ledger.persistence
        if persistence is not None:
            # two thresholds: with one alone the choice could flip from step to step
            self.is_on = persistence > (self.off_at if self.is_on else self.on_at)


def row_weight(ledger: Ledger, row: int) -> float:
    """The weight of a row under `auto`."""
    dead = ledger.dead_streak(row)
    if dead:
        return 0.025 * max(0.5 ** (dead - 1), 0.02)
    entry = ledger.entries.get(row)
    return variance(entry.alpha / (entry.alpha + entry.beta) if entry else None)
