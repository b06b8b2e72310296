"""Adaptive data scheduling: clusters are drawn by their share of right answers, and each has a window of rows that the
policy solves sometimes.

After arXiv 2606.22305 and its authors' sampler. It differs in four ways. Windows are not reset at each pass over the
data unless the recipe asks for it, since a window needs many steps to cross its cluster. Instead, the rate of a cluster
that was not drawn for a whole pass becomes unknown again: otherwise an all-wrong cluster would never be drawn again. A
row that failed twice in a row is skipped for a pass. Rows without a gold are ranked by their rate when first drawn.

How this works: `Clusters` holds the rows of each cluster from easy to hard. `Ads.pick` draws `active` clusters by `chances` and
takes the rows of their windows. `Ads.update` then moves each window (`move_window`), measures the share of right
answers of each cluster (its rate), and updates the probabilities: p <- (1 - s) p + s rate / sum of rates, with s =
`SMOOTHING`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from grpo_cli.curriculum.ledger import Ledger, RowOutcome
from grpo_cli.curriculum.strategies import Order, Uniform, weighted_sample
from grpo_cli.errors import DataError


@dataclass(frozen=True, slots=True)
class Clusters:
    """Clusters of rows, given by their index among the training rows; each row is in exactly one.

    `members` of a `ranked` cluster go from easy to hard. The rows of any other cluster have no known difficulty until
    they are drawn, and are sorted by index.
    """

    members: tuple[tuple[int, ...], ...]
    ranked: tuple[bool, ...]

    def as_json(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """For the run folder, rows by their ids."""
        return [
            {"ranked": ranked, "rows": [ids[row] for row in rows]}
            for rows, ranked in zip(self.members, self.ranked, strict=True)
        ]

    @classmethod
    def from_json(cls, read: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> Clusters:
        """Restore saved clusters; rows that no longer exist are left out, and clusters keep their numbers.

        Raises:
            DataError: rows that belong to no cluster.
        """
        place = {row_id: row for row, row_id in enumerate(ids)}
        known = {row_id for cluster in read for row_id in cluster["rows"]}
        new = [row_id for row_id in ids if row_id not in known]
        if new:
            raise DataError(
                f"{len(new):,} of {len(ids):,} training rows were not there when the run was begun, such as `{new[0]}`:"
                " they belong to no cluster",
                hint="resume with the rows of the run, or start another run on all of them",
            )
        members = tuple(tuple(place[i] for i in cluster["rows"] if i in place) for cluster in read)
        return cls(members, tuple(bool(cluster["ranked"]) for cluster in read))


ACTIVE = 4
"""Clusters a step draws from."""
LOW, HIGH = 0.33, 0.67
"""A row whose share of right answers is between these keeps its place in the window."""
SMOOTHING = 0.3
"""How far the clusters' probabilities move towards their rates in each step."""
START = 0.5
"""The rate assumed for a cluster that was not drawn yet."""
FAILED = 2
"""A row that failed this many times in a row is skipped for one pass over the data."""


def move_window(
    window: Sequence[int], rates: Mapping[int, float], size: int, skipped: Collection[int] = ()
) -> list[int]:
    """The window after its rows were sampled: rows that are too hard are replaced by easier ones, rows that are too
    easy by harder ones.

    1. Rows with a share of right answers between `LOW` and `HIGH`, and rows that were not drawn, keep their places.
    2. Rows right less often move to the next easier place, the easiest row first.
    3. Rows right more often move to the next harder place, the hardest row first.
    4. If a place is taken, the nearest free place is used; of two equally near ones, that in the direction of the move.

    Args:
        window: places in the cluster, 0 the easiest.
        rates: shares of right answers of the rows that were drawn; a place without one stays.
        size: places of the cluster.
        skipped: places that no row moves to while others are free.
    """
    if len(window) >= size:  # the whole cluster: there is no other place to move to
        return sorted(window)
    # 1.
    wish: dict[int, int] = {}
    for place in window:
        rate = rates.get(place)
        wish[place] = 0 if rate is None or LOW <= rate <= HIGH else (-1 if rate < LOW else 1)
    found = {place for place, way in wish.items() if way == 0}
    # 2. and 3. Outermost rows first, so that neighbours that both move do not take each other's places
    easier = sorted(place for place, way in wish.items() if way < 0)
    harder = sorted((place for place, way in wish.items() if way > 0), reverse=True)
    for place in easier + harder:
        way = wish[place]
        ahead = range(place + way, size if way > 0 else -1, way)
        wanted = next((p for p in ahead if p not in skipped), min(max(place + way, 0), size - 1))
        # 4. Search outwards from the wanted place, alternating between both sides
        near = [wanted] + [p for far in range(1, size) for p in (wanted + way * far, wanted - way * far)]
        free = [p for p in near if 0 <= p < size and p not in found]
        found.add(next((p for p in free if p not in skipped), place if place not in found else free[0]))
    return sorted(found)


def moved_chances(chances: Sequence[float], rates: Sequence[float]) -> list[float]:
    """The clusters' probabilities, moved towards their rates; towards equal ones if no answer is right."""
    whole = math.fsum(rates)
    wanted = [rate / whole for rate in rates] if whole > 0 else [1 / len(rates)] * len(rates)
    new = [(1 - SMOOTHING) * p + SMOOTHING * w for p, w in zip(chances, wanted, strict=True)]
    return [p / math.fsum(new) for p in new]


@dataclass
class ClusterWindow:
    """One cluster: its rows from easy to hard, the places of its window, and its rate and step when last drawn.

    Rows without a known difficulty are drawn in order until each was drawn once, and then ranked; `first` are their
    rates from that time.
    """

    rows: list[int]
    is_ranked: bool
    width: int
    window: list[int] = field(default_factory=list)
    rate: float = START
    last_step: int = 0
    first: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The initial window: the easiest rows, or the next rows without a known difficulty."""
        if not self.is_ranked and len(self.rows) > self.width:
            unseen = [place for place, row in enumerate(self.rows) if row not in self.first]
            if unseen:
                self.window = unseen[: self.width]
                return
            self.rows.sort(key=lambda row: -self.first[row])
            self.is_ranked = True
        self.window = list(range(min(self.width, len(self.rows))))

    def update(self, rates: Mapping[int, float | None], skipped: Collection[int]) -> None:
        """Record the rates of drawn rows of this cluster (None: nothing was judged). `skipped` are rows, too."""
        judged = [rate for rate in rates.values() if rate is not None]
        if not self.is_ranked:
            self.first |= {row: START if rate is None else rate for row, rate in rates.items() if row not in self.first}
            self.begin()
        else:
            at = {row: place for place, row in enumerate(self.rows)}
            known = {at[row]: rate for row, rate in rates.items() if rate is not None}
            self.window = move_window(self.window, known, len(self.rows), {at[row] for row in skipped})
        self.rate = fmean(judged) if judged else self.rate

    @property
    def depth(self) -> float:
        """How far into the cluster its window lies: 0 at the easiest rows, 1 at the hardest."""
        return fmean(self.window) / (len(self.rows) - 1) if len(self.rows) > 1 else 0.0


class Ads(Uniform):
    """ADS (arXiv 2606.22305): rows like each other form a cluster, sorted by how unlikely its golds are to the model as training
    starts. A step draws `train.ads.active` clusters, those with more right answers more often, and takes all rows of a
    window in each. A row right in less than a third of its samples gives way to the next easier one of its cluster, one
    right in more than two thirds to the next harder one.

    For thousands of rows of unlike difficulty: fewer than 2,000 are refused unless `train.ads_ok: true`.
    """

    def __init__(
        self,
        clusters: Clusters | None = None,
        ids: Sequence[str] = (),
        *,
        active: int = ACTIVE,
        width: int | None = None,
        reset: int | None = None,
    ) -> None:
        """Without clusters all rows form one, in their order. Without a `width` a window is as wide as the first draw
        needs.

        `ids` name rows in a checkpoint; `reset` is the number of steps after which everything starts over (None:
        never).
        """
        self.clusters, self.ids, self.active, self.width, self.reset = clusters, ids, active, width, reset
        self.bands: list[ClusterWindow] = []
        self.chances: list[float] = []
        self.steps, self.mixed = 0, 0.0

    def pick(self, ledger: Ledger, order: Order, rng: random.Random, n: int, exclude: Collection[int]) -> list[int]:
        if not self.bands:
            self._begin(order.n_rows, n)
        active = min(self.active, len(self.bands))
        # draw an order of all clusters: those after the first `active` are used if the windows have too few rows
        drawn = weighted_sample(rng, dict(enumerate(self.chances)), len(self.bands))
        chosen: list[int] = []
        for turn, number in enumerate(drawn):
            # the windows have a few more rows than `n` if it does not divide evenly; other clusters fill up for small
            # ones
            room = n // active + (turn < n % active) if turn < active else n - len(chosen)
            band = self.bands[number]
            rows = [band.rows[place] for place in band.window if band.rows[place] not in exclude]
            chosen += rows if len(rows) <= room else sorted(rng.sample(rows, room), key=rows.index)
            if len(chosen) >= n:
                return chosen[:n]
        return chosen + order.take(n - len(chosen), {*exclude, *chosen})

    def update(self, ledger: Ledger, outcomes: Sequence[RowOutcome]) -> None:
        rates = {v.row: v.right / v.judged if v.judged else None for v in outcomes}
        self.mixed = fmean(0 < v.right < v.judged for v in outcomes) if outcomes else 0.0
        since = max((ledger.entries[row].last_step for row in rates if row in ledger.entries), default=0)
        for band in self.bands:
            own = {row: rates[row] for row in band.rows if row in rates}
            if own:
                band.last_step = self.steps
                band.update(own, [row for row in band.rows if self._failed(ledger, row, since)])
            elif self.steps - band.last_step >= self._pass(ledger):
                band.rate = START
        self.chances = moved_chances(self.chances, [band.rate for band in self.bands]) if self.bands else []
        self.steps += 1
        if self.reset and self.steps % self.reset == 0:
            for band in self.bands:
                band.rate = START
                band.begin()
            self.chances = [1 / len(self.bands)] * len(self.bands)

    def _failed(self, ledger: Ledger, row: int, now: int) -> bool:
        entry = ledger.entries.get(row)
        if entry is None or entry.pass_rate > 0 or entry.dead_streak < FAILED:
            return False
        return now - entry.last_step < self._pass(ledger)

    def _pass(self, ledger: Ledger) -> float:
        """Number of steps that draw as many rows as the data has."""
        return len(ledger.ids) / (min(self.active, len(self.bands)) * (self.width or 1))

    def _begin(self, n_rows: int, n: int) -> None:
        made = self.clusters or Clusters((tuple(range(n_rows)),), (True,))
        if self.width is None:
            self.width = math.ceil(n / min(self.active, len(made.members)))
        both = zip(made.members, made.ranked, strict=True)
        self.bands = [ClusterWindow(list(rows), ranked, self.width) for rows, ranked in both]
        self.chances = [1 / len(self.bands)] * len(self.bands)

    def metrics(self) -> dict[str, float]:
        """Share of the last draw's groups that are partly right, mean depth of the windows (0 easy, 1 hard), and
        entropy of the clusters' probabilities (nats)."""
        if not self.bands:
            return {}
        return {
            "ads/mixed": self.mixed,
            "ads/window_mean": fmean(band.depth for band in self.bands if band.rows),
            "ads/entropy_of_p": -math.fsum(p * math.log(p) for p in self.chances if p > 0),
        }

    def state(self) -> dict[str, Any]:
        if not self.bands:
            return {}
        bands = [
            {
                "rate": band.rate,
                "at": band.last_step,
                "window": [self._name(band.rows[place]) for place in band.window],
                "first": {self._name(row): rate for row, rate in band.first.items()},
            }
            for band in self.bands
        ]
        return {
            "n_rows": sum(len(band.rows) for band in self.bands),
            "width": self.width,
            "steps": self.steps,
            "p": self.chances,
            "clusters": bands,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        if not state:
            return
        self.width = state["width"]
        self._begin(state["n_rows"], 0)
        self.steps, self.chances = state["steps"], list(state["p"])
        for band, saved in zip(self.bands, state["clusters"], strict=True):
            row_of = {self._name(row): row for row in band.rows}
            band.first = {row_of[name]: rate for name, rate in saved["first"].items() if name in row_of}
            # before the window is set: ranking reorders the rows, and with them the meaning of places
            band.begin()  # ranks the rows once all were drawn
            place = {self._name(row): at for at, row in enumerate(band.rows)}
            kept = [place[name] for name in saved["window"] if name in place]
            spare = [at for at in range(len(band.rows)) if at not in kept]
            band.window = sorted(kept + spare[: len(saved["window"]) - len(kept)])
            band.rate, band.last_step = saved["rate"], saved["at"]

    def _name(self, row: int) -> str:
        return self.ids[row] if self.ids else str(row)
