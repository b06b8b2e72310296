"""Rows that surely fit the context are not tokenised; the others are counted exactly."""

from __future__ import annotations

from typing import Any

from grpo_cli.data.rows import Row
from grpo_cli.train.builtin import byte_tokenizer
from grpo_cli.train.splits import Lengths


def row(text: str, system: str | None = None) -> Row:
    said = [{"role": "system", "content": system}] if system else []
    return Row(id=text, prompt=text, messages=[*said, {"role": "user", "content": text}], fields={})


def counting(lengths: Lengths, asked: Row) -> tuple[int, int]:
    """The length, and how often it took the tokenizer."""
    calls = 0
    exact: Any = lengths.tokenizer.apply_chat_template

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return exact(*args, **kwargs)

    lengths.tokenizer.apply_chat_template = counted
    found = lengths(asked)
    del lengths.tokenizer.apply_chat_template
    return found, calls


def test_a_short_row_is_not_tokenised_and_its_bound_is_no_less_than_its_length() -> None:
    rows = [row("1+1=?"), row("22+3=?")]
    bound, calls = counting(Lengths(byte_tokenizer(), rows, 200), rows[1])
    assert calls == 0
    assert 8 <= bound <= 200


def test_a_row_near_the_limit_is_counted_exactly() -> None:
    rows = [row("1+1=?"), row("9" * 198), row("9" * 199)]
    lengths = Lengths(byte_tokenizer(), rows, 200)
    assert counting(lengths, rows[1]) == (200, 1)
    assert counting(lengths, rows[2]) == (201, 1)


def test_rows_with_other_turns_are_counted_exactly() -> None:
    rows = [row("1+1=?"), row("1+1=?", system="be brief")]
    assert counting(Lengths(byte_tokenizer(), rows, 200), rows[1]) == (16, 1)
