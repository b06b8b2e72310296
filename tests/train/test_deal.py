"""Which rank trains on which samples: as many each, about as many tokens, and the same on all ranks."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from grpo_cli.train.trl_batch import deal
from grpo_cli.train.updates import dealt

LENGTHS = (900, 700, 650, 400, 350, 300, 200, 100)


@pytest.mark.parametrize(
    ("world", "loads", "above"), [(2, [1850, 1750], 1.027778), (4, [900, 900, 950, 850], 1.055556)]
)
def test_the_costliest_goes_to_the_part_that_has_least(world: int, loads: list[int], above: float) -> None:
    found = dealt([[at] for at in range(8)], LENGTHS, [8] * world)[:world]
    sums = [sum(LENGTHS[row] for row in rows) for rows in found]
    assert sums == loads and max(sums) / (sum(LENGTHS) / world) == pytest.approx(above, abs=1e-6)


def test_ranks_have_as_many_rows_each() -> None:
    # groups of two: 1000, 1650, 700 and 250 tokens
    lengths = [900, 100, 850, 800, 400, 300, 200, 50]
    found = deal([0] * 4, lengths, [True] * 8, 2)
    assert found == [[2, 3, 6, 7], [0, 1, 4, 5]]
    assert [sum(lengths[place] for place in places) for places in found] == [1900, 1700]


def test_a_prompt_counts_once_and_a_dead_row_nothing() -> None:
    alive = [True, True, False, False, True, False, True, True]
    # 10 + 1 + 1, nothing, 3 + 1, 1 + 1 + 1: the second group is as good as not there
    assert deal([10, 500, 3, 1], [1, 1, 900, 900, 1, 900, 1, 1], alive, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_group_that_does_not_fit_fills_the_gaps() -> None:
    found = deal([0] * 5, [5] * 20, [True] * 20, 2)
    assert [len(places) for places in found] == [10, 10] and sorted(found[0] + found[1]) == list(range(20))
    whole = [g for g in range(5) for places in found if set(range(4 * g, 4 * g + 4)) <= set(places)]
    assert len(whole) == 4


def test_one_rank_has_all_rows_in_their_order() -> None:
    assert deal([3, 4], [5, 1, 9, 2], [True] * 4, 1) == [[0, 1, 2, 3]]


def test_ranks_wait_less_for_each_other() -> None:
    rng = random.Random(0)
    for world, most in ((2, 1.02), (4, 1.06), (8, 1.16)):
        above, in_order = [], []
        for _ in range(50):
            # as of a card that draws long answers, up to 4,096 tokens
            lengths = [min(4096, int(rng.expovariate(1 / 1400)) + 1) for _ in range(16 * 8)]
            found = deal([60] * 16, lengths, [True] * 128, world)
            assert {len(places) for places in found} == {128 // world}
            part = 128 // world
            for into, places in ((above, found), (in_order, [range(r * part, r * part + part) for r in range(world)])):
                into.append(max(sum(lengths[row] for row in rows) for rows in places) / (sum(lengths) / world))
        assert fmean(above) < most < fmean(in_order)
