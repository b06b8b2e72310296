"""Choosing rows. `history` plays a data set whose rows have fixed pass rates and reports what was drawn."""

from __future__ import annotations

import random

import pytest

from grpo_cli.curriculum.ledger import RowOutcome
from grpo_cli.curriculum.select import SELECTORS, Order, Selection
from grpo_cli.curriculum.strategies import Auto, Mopps, Priority, row_weight, skip_chance, variance, weighted_sample

NAMES = tuple(SELECTORS)


def ids(n: int) -> list[str]:
    return [f"row-{i}" for i in range(n)]


def outcome(row: int, right: int, judged: int = 8) -> RowOutcome:
    return RowOutcome(row, right, judged, 0 < right < judged)


def history(name: str, rates: list[float], steps: int, prompts: int = 8, seed: int = 0) -> tuple[Selection, list[int]]:
    """Drive a selection for `steps` draws of rows with these pass rates; all draws, in order."""
    made, chance, drawn = Selection(name, ids(len(rates)), seed), random.Random(seed), list[int]()
    for generation in range(steps):
        rows = made.choose(generation, prompts)
        made.update(generation, [outcome(r, sum(chance.random() < rates[r] for _ in range(8))) for r in rows])
        drawn += rows
    return made, drawn


def test_an_epoch_sees_every_row_at_most_once_and_drops_the_rest() -> None:
    order = Order(10, seed=1)
    drawn = [row for _ in range(3) for row in order.take(3)]
    assert len(set(drawn)) == 9
    order.take(3)
    assert order.drawn == 13


def test_later_epochs_have_an_order_of_their_own() -> None:
    order = Order(12, seed=1)
    epochs = [[row for _ in range(3) for row in order.take(4)] for _ in range(3)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_order_is_a_function_of_seed_and_position() -> None:
    one, other = Order(100, seed=3), Order(100, seed=3)
    one.take(56)
    other.drawn = 56
    assert one.take(8) == other.take(8)
    assert Order(100, seed=3).take(8) != Order(100, seed=4).take(8)


@pytest.mark.parametrize("name", NAMES)
def test_a_draw_has_different_rows_and_none_that_were_taken(name: str) -> None:
    made, _ = history(name, [0.0, 0.5, 1.0] * 10, steps=12)
    first = made.choose(12, 8)
    more = made.choose(12, 8, set(first))
    assert len(set(first)) == len(first) == 8
    assert len(set(more)) == 8 and not set(more) & set(first)


@pytest.mark.parametrize("name", NAMES)
def test_a_draw_gives_what_is_left_when_rows_run_out(name: str) -> None:
    made, _ = history(name, [0.5] * 10, steps=3)
    assert sorted(made.choose(3, 8, set(range(6)))) == [6, 7, 8, 9]


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_selection_goes_on_as_the_unbroken_one(name: str) -> None:
    rates = [0.0] * 20 + [0.5] * 12 + [1.0] * 8
    made, _ = history(name, rates, steps=25)
    restored = Selection(name, ids(len(rates)), seed=0)
    restored.load_state(made.state())
    for generation in range(25, 32):
        rows = made.choose(generation, 8)
        assert restored.choose(generation, 8) == rows
        for one in (made, restored):
            one.update(generation, [outcome(r, 4 if rates[r] == 0.5 else int(8 * rates[r])) for r in rows])


@pytest.mark.parametrize("name", ["auto", "greso", "priority", "mopps"])
def test_history_prefers_rows_with_signal(name: str) -> None:
    rates = [0.0] * 30 + [0.5] * 16 + [1.0] * 18
    drawn = history(name, rates, steps=120)[1][-240:]
    live = sum(rates[row] == 0.5 for row in drawn) / len(drawn)
    assert live > 0.4  # uniform: 0.25


@pytest.mark.parametrize("name", ["auto", "greso", "priority"])
def test_useless_rows_are_looked_at_again(name: str) -> None:
    rates = [0.0] * 30 + [0.5] * 16 + [1.0] * 18
    drawn = history(name, rates, steps=200)[1][800:]
    assert len({row for row in drawn if rates[row] != 0.5}) > 24


def test_auto_stays_uniform_where_dead_rows_come_alive() -> None:
    made, drawn = history("auto", [0.85] * 64, steps=80)
    assert made.ledger.persistence is not None and made.ledger.persistence < 0.5
    assert made.metrics()["rows/by_history"] == 0
    assert all(drawn.count(row) == 10 for row in range(64))


def test_auto_turns_history_on_where_dead_rows_stay_dead_and_off_again() -> None:
    made, _ = history("auto", [0.0] * 48 + [0.5] * 16, steps=30)
    assert made.metrics()["rows/by_history"] == 1
    made.update(30, [outcome(row, 4) for row in range(48)] + [outcome(row, 0) for row in range(48)])
    for generation in range(31, 36):
        made.update(generation, [outcome(row, 0) for row in range(48)])
        made.update(generation, [outcome(row, 4) for row in range(48)])
    assert made.metrics()["rows/by_history"] == 0


@pytest.mark.parametrize("name", ["auto", "greso"])
def test_the_first_pass_is_uniform(name: str) -> None:
    rates = [0.0, 0.5, 1.0] * 40
    assert history(name, rates, steps=15)[1] == history("uniform", rates, steps=15)[1]


def test_auto_judges_persistence_only_on_enough_visits() -> None:
    made, _ = history("auto", [0.0] * 40, steps=5, prompts=8)
    assert made.ledger.persistence is None
    assert not Auto().is_on


def test_greso_numbers() -> None:
    assert [skip_chance(0.5, z) for z in (1, 2, 3)] == [0.5, 0.75, 0.875]
    assert skip_chance(0.5, 7) == pytest.approx(0.99, abs=0.0025)
    assert skip_chance(0.5, 0) == 0


def test_greso_moves_q_towards_its_target() -> None:
    made, _ = history("greso", [0.0] * 64, steps=20)
    assert made.state()["strategy"]["q"] == pytest.approx({"easy": 0.7, "hard": 0.3})


def test_mopps_numbers() -> None:
    made = Selection("mopps", ids(1), seed=0)
    made.update(0, [outcome(0, 2)])
    entry = made.ledger.entries[0]
    assert (entry.alpha, entry.beta, entry.alpha / (entry.alpha + entry.beta)) == (3, 7, 0.3)
    assert isinstance(made.strategy, Mopps)


def test_priority_numbers() -> None:
    assert [variance(k / 8) for k in (0, 1, 4, 7)] == [0, 0.109375, 0.25, 0.109375]
    assert variance(None) == 0.25
    assert Priority.retest == 1 / 8


def test_easy_to_hard_takes_the_easiest_first_after_one_epoch() -> None:
    rates = [i / 15 for i in range(16)]
    drawn = history("easy_to_hard", rates, steps=4, prompts=8)[1]
    assert sorted(drawn[:16]) == list(range(16))
    second = drawn[16:]
    assert sum(second[:8]) > sum(second[8:])


def test_a_promise_falls_with_every_dead_visit_but_never_to_nothing() -> None:
    made = Selection("auto", ids(2), seed=0)
    fresh = row_weight(made.ledger, 0)
    seen = []
    for generation in range(12):
        made.update(generation, [outcome(0, 0)])
        seen.append(row_weight(made.ledger, 0))
    assert fresh == 0.25
    assert seen == sorted(seen, reverse=True) and seen[-1] > 0


def test_weighted_draws_are_in_proportion() -> None:
    rng = random.Random(0)
    first = [weighted_sample(rng, {1: 3.0, 2: 1.0, 3: 0.0}, 1)[0] for _ in range(4000)]
    assert first.count(1) / 4000 == pytest.approx(0.75, abs=0.03)
    assert weighted_sample(rng, {1: 3.0, 2: 1.0, 3: 0.0}, 3) in ([1, 2], [2, 1])
