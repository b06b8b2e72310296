from __future__ import annotations

from grpo_cli.data.audit import Corpus
from grpo_cli.data.rows import Row

LONG = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May."


def rows(*texts: str) -> list[Row]:
    return [Row(str(i), text, None, {}) for i, text in enumerate(texts)]


def ids(*texts: str) -> list[tuple[str, str]]:
    return [(pair.first.id, pair.second.id) for pair in Corpus(rows(*texts)).duplicates()]


def test_case_and_white_space_make_no_new_question() -> None:
    assert ids("What is 1 + 1?", "what is\n 1+1 ?") == [("0", "1")]


def test_another_number_makes_another_short_question() -> None:
    assert ids("412+989=?", "412+988=?") == []


def test_another_name_makes_a_near_copy() -> None:
    (pair,) = Corpus(rows(LONG, LONG.replace("Natalia", "Emma"))).duplicates()
    assert 0.8 <= pair.similarity < 1.0


def test_a_shared_instruction_makes_no_near_copies() -> None:
    instruction = "Work step by step, check the result twice, and put the final answer into a box at the end. "
    assert ids(*(f"{instruction}{n} times {n * n} minus {n + 1}" for n in range(20))) == []


def test_a_held_out_row_in_the_training_set_is_found() -> None:
    (pair,) = Corpus(rows("other", LONG)).overlap(rows(LONG))
    assert (pair.first.id, pair.second.id, pair.similarity) == ("1", "0", 1.0)


def test_nothing_overlaps_with_nothing() -> None:
    assert Corpus([]).overlap(rows("a")) == []
    assert Corpus(rows("a")).overlap([]) == []


def test_rows_of_a_few_wordings_with_other_values_are_other_questions() -> None:
    kinds = ("bread", "cheese", "fish", "tea")
    texts = [
        f"List the {kind} that costs {way} than {n}." for kind in kinds for way in ("less", "more") for n in range(9)
    ]
    assert ids(*texts) == []
    again = Corpus(rows(*texts)).overlap(rows("List the tea that costs less than 70.", texts[7]))
    assert [(pair.second.id, pair.is_exact) for pair in again] == [("1", True)]


def test_a_near_copy_is_not_called_exact() -> None:
    instruction = "Work step by step, and put the final answer into a box at the end."
    texts = [f"{LONG.replace('48', str(n))} {instruction}" for n in range(30)]
    assert not any(pair.is_exact for pair in Corpus(rows(*texts)).duplicates())
