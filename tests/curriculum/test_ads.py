"""ADS: where windows move, which clusters are drawn how often, against play by hand and enumeration."""

from __future__ import annotations

import itertools
import random
from statistics import fmean

import pytest

from grpo_cli.curriculum.ads import Ads, Clusters, ClusterWindow, move_window, moved_chances
from grpo_cli.curriculum.ledger import RowOutcome
from grpo_cli.curriculum.select import Selection
from grpo_cli.errors import DataError


def outcome(row: int, right: int, judged: int = 8) -> RowOutcome:
    return RowOutcome(row, right, judged, 0 < right < judged)


def equal_clusters(k: int, size: int, ranked: bool = True) -> Clusters:
    """Cluster c holds the rows c*size …, the easiest first."""
    return Clusters(tuple(tuple(range(c * size, (c + 1) * size)) for c in range(k)), (ranked,) * k)


def selection(clusters: Clusters, active: int, width: int, seed: int = 0, **more: int) -> Selection:
    ids = [f"row-{i}" for i in range(sum(map(len, clusters.members)))]
    return Selection("ads", ids, seed, Ads(clusters, ids, active=active, width=width, **more))


@pytest.mark.parametrize(
    ("window", "rates", "expected"),
    [
        ([0, 1, 2, 3], {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, [1, 2, 3, 4]),
        ([4, 5, 6, 7], {4: 0.0, 5: 0.0, 6: 0.0, 7: 0.0}, [3, 4, 5, 6]),
        ([0, 1, 2, 3], {0: 1.0, 1: 0.5, 2: 0.9, 3: 0.1}, [0, 1, 2, 3]),
        ([2, 3, 4], {2: 0.0, 3: 0.5, 4: 1.0}, [1, 3, 5]),
        ([0, 1, 2], {0: 0.0, 1: 0.0, 2: 0.0}, [0, 1, 2]),
        ([7, 8, 9], {7: 1.0, 8: 1.0, 9: 1.0}, [7, 8, 9]),
        ([4, 5, 6], {}, [4, 5, 6]),
    ],
)
def test_windows_of_a_cluster_of_ten(window: list[int], rates: dict[int, float], expected: list[int]) -> None:
    assert move_window(window, rates, 10) == expected


def by_hand(window: list[int], rates: dict[int, float], size: int) -> list[int]:
    """The same told otherwise: every free place gets a cost, the cheapest one is taken."""
    ways = {p: (rates[p] > 0.67) - (rates[p] < 0.33) if p in rates else 0 for p in window}
    taken = [p for p in window if ways[p] == 0]
    movers = [p for p in sorted(window) if ways[p] < 0] + [p for p in sorted(window, reverse=True) if ways[p] > 0]
    for p in movers:
        way = ways[p]
        aim = min(max(p + way, 0), size - 1)
        cost = {q: 2 * abs(q - aim) - ((q - aim) * way > 0) for q in range(size) if q not in taken}
        taken.append(min(cost, key=lambda q: cost[q]))
    return sorted(taken)


def test_all_windows_of_small_clusters_move_as_by_hand() -> None:
    tried = 0
    for size in range(2, 7):
        for width in range(1, size):
            for window in itertools.combinations(range(size), width):
                for found in itertools.product((0.0, 0.5, 1.0), repeat=width):
                    rates = dict(zip(window, found, strict=True))
                    moved = move_window(window, rates, size)
                    assert moved == by_hand(list(window), rates, size)
                    assert len(set(moved)) == width
                    tried += 1
    assert tried > 4000


def test_the_bounds_of_the_boundary_belong_to_it() -> None:
    assert move_window([5], {5: 0.33}, 10) == move_window([5], {5: 0.67}, 10) == [5]
    assert move_window([5], {5: 0.329}, 10) == [4]
    assert move_window([5], {5: 0.671}, 10) == [6]


def test_a_window_as_wide_as_its_cluster_stays() -> None:
    assert move_window([0, 1, 2], {0: 1.0, 1: 1.0, 2: 1.0}, 3) == [0, 1, 2]


def test_places_that_failed_twice_are_stepped_over_unless_nothing_else_is_free() -> None:
    assert move_window([5], {5: 1.0}, 10, skipped={6, 7}) == [8]
    assert move_window([5], {5: 0.0}, 10, skipped={4, 5}) == [3]
    assert move_window([9], {9: 1.0}, 10, skipped=set(range(10))) == [9]
    assert move_window([1], {1: 0.0}, 3, skipped={0, 1, 2}) == [1]


def test_chances_move_towards_the_shares_right() -> None:
    assert moved_chances([0.25] * 4, [0.8, 0.2, 0.5, 0.5]) == pytest.approx([0.295, 0.205, 0.25, 0.25])
    assert moved_chances([0.5, 0.5], [0.8, 0.2]) == pytest.approx([0.59, 0.41])
    assert moved_chances([0.7, 0.3], [0.0, 0.0]) == pytest.approx([0.64, 0.36])


def test_clusters_are_drawn_one_after_another_by_their_chances() -> None:
    """How often each cluster is in a draw of two of four, against all ordered pairs."""
    made = selection(equal_clusters(4, 20), active=2, width=3)
    made.choose(0, 6)
    assert isinstance(made.strategy, Ads)
    p = made.strategy.chances = [0.4, 0.3, 0.2, 0.1]
    exact = [0.0] * 4
    for a, b in itertools.permutations(range(4), 2):
        for drawn in (a, b):
            exact[drawn] += p[a] * p[b] / (1 - p[a])
    n = 6000
    counts = [0] * 4
    for generation in range(n):
        rows = made.choose(generation, 6)
        found = {row // 20 for row in rows}
        assert len(found) == 2 and len(rows) == 6
        for cluster in found:
            counts[cluster] += 1
    for count, chance in zip(counts, exact, strict=True):
        assert abs(count / n - chance) < 4 * (chance * (1 - chance) / n) ** 0.5


def test_a_draw_is_cut_evenly_where_it_does_not_divide() -> None:
    made = selection(equal_clusters(6, 30), active=4, width=5)
    counts = [sum(row // 30 == c for row in made.choose(0, 18)) for c in range(6)]
    assert sorted(counts) == [0, 0, 4, 4, 5, 5]


def test_small_clusters_are_filled_up_from_others() -> None:
    clusters = Clusters(((0,), (1, 2), tuple(range(3, 60))), (True,) * 3)
    made = selection(clusters, active=2, width=8)
    for generation in range(20):
        rows = made.choose(generation, 16)
        assert len(set(rows)) == 16
        made.update(generation, [outcome(row, 4) for row in rows])


def test_a_step_moves_windows_rates_and_chances_of_what_was_drawn_alone() -> None:
    made = selection(equal_clusters(4, 20), active=2, width=3)
    rows = made.choose(0, 6)
    drawn = {row // 20 for row in rows}
    made.update(0, [outcome(row, 8) for row in rows])
    ads = made.strategy
    assert isinstance(ads, Ads)
    assert [band.window for band in ads.bands] == [[1, 2, 3] if c in drawn else [0, 1, 2] for c in range(4)]
    rates = [1.0 if c in drawn else 0.5 for c in range(4)]
    assert [band.rate for band in ads.bands] == rates
    assert ads.chances == pytest.approx([0.7 / 4 + 0.3 * rate / sum(rates) for rate in rates])


def test_a_group_without_a_verdict_moves_nothing() -> None:
    made = selection(equal_clusters(2, 20), active=2, width=2)
    rows = made.choose(0, 4)
    made.update(0, [outcome(row, 0, judged=0) for row in rows])
    ads = made.strategy
    assert isinstance(ads, Ads)
    assert all(band.window == [0, 1] and band.rate == 0.5 for band in ads.bands)


def test_a_row_that_failed_twice_is_left_for_a_pass_over_the_data_and_not_longer() -> None:
    made = selection(equal_clusters(1, 8), active=1, width=1)
    ads = made.strategy
    assert isinstance(ads, Ads)
    made.choose(0, 1)
    for generation in (0, 1):
        made.update(generation, [outcome(3, 0)])
    assert ads._failed(made.ledger, 3, 8)
    assert not ads._failed(made.ledger, 3, 9)  # 8 rows at one a step
    made.update(2, [outcome(3, 4)])
    assert not ads._failed(made.ledger, 3, 3)


def test_rows_without_a_gold_are_ranked_by_their_first_visit() -> None:
    rates = [0.2, 0.9, 0.5, 0.7, 0.1]
    band = ClusterWindow(list(range(5)), False, width=2)
    visited = []
    while not band.is_ranked:
        now = [band.rows[place] for place in band.window]
        visited += now
        band.update({row: rates[row] for row in now}, ())
    assert visited == [0, 1, 2, 3, 4]
    assert band.rows == [1, 3, 2, 0, 4]
    assert band.window == [0, 1]


def test_a_reset_takes_all_back_to_the_easiest() -> None:
    made = selection(equal_clusters(2, 20), active=2, width=2, reset=3)
    ads = made.strategy
    assert isinstance(ads, Ads)
    for generation in range(3):
        rows = made.choose(generation, 4)
        made.update(generation, [outcome(row, 8 if row < 20 else 7) for row in rows])
        assert (ads.bands[0].window == [0, 1]) == (generation == 2)
    assert ads.chances == [0.5, 0.5] and ads.bands[0].rate == 0.5


def played(made: Selection, start: int, stop: int, skill: float) -> list[list[int]]:
    """Rows whose difficulty is their place in a cluster of 50; right in a share that falls with it."""
    drawn = []
    for generation in range(start, stop):
        rows = made.choose(generation, 8)
        chance = random.Random(generation)
        rates = {row: min(max(0.5 + (skill - row % 50) / 20, 0.0), 1.0) for row in rows}
        made.update(generation, [outcome(r, sum(chance.random() < rates[r] for _ in range(8))) for r in rows])
        drawn.append(rows)
    return drawn


@pytest.mark.parametrize(("ranked", "stop"), [(True, 90), (False, 18), (False, 31), (False, 90)])
def test_a_checkpoint_by_row_ids_goes_on_as_the_unbroken_run(ranked: bool, stop: int) -> None:
    """Also where the rows stand in another order by then."""
    clusters = equal_clusters(5, 50, ranked)
    made = selection(clusters, active=2, width=4)
    played(made, 0, stop, skill=25)
    ids = list(reversed(made.ledger.ids))
    saved, read = made.state(), clusters.as_json(made.ledger.ids)
    other = Clusters.from_json(read, ids)
    restored = Selection("ads", ids, 0, Ads(other, ids, active=2, width=4))
    restored.load_state(saved)
    for generation in range(stop, stop + 20):
        rows = made.choose(generation, 8)
        assert [made.ledger.ids[row] for row in rows] == [ids[row] for row in restored.choose(generation, 8)]
        right = {row: (row * 7 + generation) % 9 for row in rows}
        made.update(generation, [outcome(row, right[row]) for row in rows])
        restored.update(generation, [outcome(len(ids) - 1 - row, right[row]) for row in rows])
    assert made.state() == restored.state()


def test_rows_that_are_gone_are_left_out_and_new_ones_refused() -> None:
    read = equal_clusters(2, 3).as_json(["a", "b", "c", "d", "e", "f"])
    assert Clusters.from_json(read, ["f", "a", "e"]).members == ((1,), (2, 0))
    with pytest.raises(DataError, match="1 of 2 training rows were not there"):
        Clusters.from_json(read, ["a", "new"])


def test_windows_find_the_boundary_and_stay_there() -> None:
    made = selection(equal_clusters(5, 50), active=2, width=4)
    late = [row % 50 for rows in played(made, 0, 300, skill=25)[-60:] for row in rows]
    assert 20 < fmean(late) < 30
    found = made.metrics()
    assert found["ads/mixed"] > 0.8
    assert 0.4 < found["ads/window_mean"] < 0.6
    assert 0 < found["ads/entropy_of_p"] <= 1.6095  # log 5


def test_a_cluster_that_was_all_wrong_is_tried_again_after_a_pass() -> None:
    made = selection(equal_clusters(4, 20), active=2, width=2)  # a pass is 20 steps
    late = []
    for generation in range(120):
        rows = made.choose(generation, 4)
        made.update(generation, [outcome(row, 0 if row < 20 and generation < 40 else 4) for row in rows])
        late += [row for row in rows if generation >= 60]
    share = sum(row < 20 for row in late) / len(late)
    assert 0.1 < share < 0.4
