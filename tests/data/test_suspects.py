"""What rows alone say: copies, exposure, contradictions, and golds unlike those of their template."""

from __future__ import annotations

import time

import pytest

from grpo_cli.data.rows import Row
from grpo_cli.data.suspects import RowSignals

NAMES = ("Maria", "Omar", "Ines", "Tariq", "Lena", "Pavel", "Chloe", "Juan")


def rows(*pairs: tuple[str, object]) -> list[Row]:
    return [Row(str(i), text, None, {"answer": gold}) for i, (text, gold) in enumerate(pairs)]


def choices(n: int) -> list[tuple[str, object]]:
    """Questions of one template whose gold is always `unknown`."""
    return [
        (f"{NAMES[i % 8]} and {NAMES[(i // 8 + 1 + i) % 8]} met at {i} o'clock. Who stole it?", "unknown")
        for i in range(n)
    ]


def test_copies_count_case_and_white_space_as_nothing() -> None:
    found = RowSignals.of(rows(("What is 1 + 1?", 2), ("what is 1+1 ?", 2), ("other", 3)))
    assert found.copies == [2, 2, 1]
    assert found.repeated == []
    assert found.contradictions == []


def test_one_row_of_many_epochs_is_exposed_and_one_of_a_large_set_is_not() -> None:
    assert RowSignals.of(rows(("one", 1))).exposed(draws=400) == [0]
    many = RowSignals.of(rows(*[(f"question {i}", i) for i in range(200)]))
    assert many.exposed(draws=800) == []


@pytest.mark.parametrize(("copies", "is_exposed"), [(10, True), (9, False)])
def test_five_in_a_hundred_draws_are_the_bar(copies: int, is_exposed: bool) -> None:
    """200 rows, ten of them one question: 40 draws of 800."""
    found = RowSignals.of(rows(*[("one", 1)] * copies, *[(f"q {i}", i) for i in range(200 - copies)]))
    assert found.exposed(draws=800) == (list(range(copies)) if is_exposed else [])
    assert found.repeated == list(range(copies))


def test_a_short_run_exposes_nothing() -> None:
    assert RowSignals.of(rows(("one", 1), ("two", 2))).exposed(draws=8) == []


def test_one_question_with_two_golds_contradicts_itself() -> None:
    found = RowSignals.of(rows(("Capital of X?", "Rome"), ("capital of x?", "Oslo"), ("Y", "a"), ("Y", "A")))
    assert found.contradictions == [(0, 1)]
    assert found.contradicting() == {0, 1}


def test_a_flipped_row_of_a_template_has_a_rare_gold() -> None:
    made = choices(200)
    made[77] = (made[77][0], made[77][0].split()[0])
    (found,) = RowSignals.of(rows(*made)).rare
    assert (found.row, found.shape, found.usual) == (77, "A", "unknown")
    assert found.share == pytest.approx(1 / 200)


def test_another_unit_in_one_gold_is_rare() -> None:
    made: list[tuple[str, object]] = [(f"A train runs {i} km in {i + 2} h. How far?", f"{i} km") for i in range(60)]
    made[5] = (made[5][0], "5 m")
    assert [rare.row for rare in RowSignals.of(rows(*made)).rare] == [5]


def test_numbers_of_one_template_are_one_shape_and_mixed_golds_are_none() -> None:
    sums = [(f"What is {i} + {2 * i}?", 3 * i) for i in range(100)]
    assert RowSignals.of(rows(*sums)).rare == []
    mixed = [(f"Is {i} prime?", "yes" if i % 4 == 1 else "no") for i in range(100)]
    assert RowSignals.of(rows(*mixed)).rare == []


def test_golds_that_are_no_single_text_are_not_compared() -> None:
    found = RowSignals.of(rows(("a", ["1", "2"]), ("a", None), ("a", True)))
    assert found.contradictions == []
    assert found.rare == []
    assert RowSignals.of([]).copies == []


def test_thirty_thousand_rows_are_looked_at_in_bounded_time() -> None:
    made = rows(
        *[(f"{NAMES[i % 8]} has {i} apples and gives {i % 7} away. How many are left?", i) for i in range(30_000)]
    )
    began = time.process_time()
    RowSignals.of(made)
    assert time.process_time() - began < 15
