from grpo_cli.curriculum.ledger import ENOUGH, Ledger, RowOutcome


def ledger(n: int = 4) -> Ledger:
    return Ledger([f"row-{i}" for i in range(n)])


def test_shares_are_of_all_rows() -> None:
    made = ledger()
    made.update(0, [RowOutcome(0, 8, 8, False), RowOutcome(1, 0, 8, False), RowOutcome(2, 3, 8, True)])
    assert made.metrics() == {
        "rows/seen": 0.75,
        "rows/solved": 0.25,
        "rows/impossible": 0.0,
        "rows/persistence": None,
        "rows/top_share": None,
    }
    made.update(1, [RowOutcome(1, 0, 8, False)])
    assert made.metrics()["rows/impossible"] == 0.25


def test_a_group_without_verdicts_says_nothing() -> None:
    made = ledger()
    made.update(0, [RowOutcome(0, 0, 0, False)])
    assert made.pass_rate(0) is None
    assert made.dead_streak(0) == 0


def test_a_right_answer_ends_a_dead_streak() -> None:
    made = ledger()
    for generation, right in enumerate((0, 0, 1)):
        made.update(generation, [RowOutcome(0, right, 8, 0 < right < 8)])
    assert made.dead_streak(0) == 0
    assert made.pass_rate(0) == 1 / 8


def test_persistence_counts_visits_to_rows_that_were_dead_before() -> None:
    made = ledger(ENOUGH)
    made.update(0, [RowOutcome(row, 0, 8, False) for row in range(ENOUGH)])
    assert made.persistence is None
    made.update(1, [RowOutcome(row, 0, 8, False) if row % 4 else RowOutcome(row, 4, 8, True) for row in range(ENOUGH)])
    assert made.persistence == 0.75
    made.update(
        2, [RowOutcome(row, 0, 8, False) for row in range(0, ENOUGH, 4)]
    )  # these were alive before: no evidence
    assert made.persistence == 0.75


def test_state_survives_a_change_of_row_order() -> None:
    made = ledger()
    made.update(5, [RowOutcome(0, 3, 8, True), RowOutcome(3, 8, 8, False)])
    moved = Ledger(["row-3", "row-9", "row-0"])
    moved.load_state(made.state())
    assert moved.pass_rate(0) == 1.0
    assert moved.pass_rate(2) == 3 / 8
    assert moved.pass_rate(1) is None


def test_the_hardest_pulling_row_has_its_share_of_all_that_was_learned_from() -> None:
    made = Ledger(["a", "b", "c"])
    made.update(
        0, [RowOutcome(0, 4, 8, True, pull=6.0), RowOutcome(1, 4, 8, True, pull=2.0), RowOutcome(2, 8, 8, False)]
    )
    assert made.metrics()["rows/top_share"] == 0.75
    made.update(1, [RowOutcome(1, 4, 8, True, pull=8.0)])
    assert made.metrics()["rows/top_share"] == 10 / 16
    again = Ledger(["b", "a"])
    again.load_state(made.state())
    assert again.metrics()["rows/top_share"] == 10 / 16


def test_a_ledger_of_an_older_checkpoint_loads_without_pulls() -> None:
    made = Ledger(["a"])
    made.load_state({"rows": {"a": [3, 0.5, 0, 1.0, 1.0, 7]}, "again": []})
    assert made.entries[0].last_step == 7
    assert made.metrics()["rows/top_share"] is None
