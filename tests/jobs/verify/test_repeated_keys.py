"""`grpo verify` on completions whose JSON says a key twice: the line is named, and the others are judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.errors import DataError
from grpo_cli.jobs.verify.fields import BadLine
from grpo_cli.jobs.verify.formats import GoldRows, read_lines
from grpo_cli.jobs.verify.scorer import parse

GOOD = '{"completion": "5", "answer": "5"}'
TWICE = '{"completion": "5", "answer": "5", "answer": "6"}'


def read(path: Path) -> list[str]:
    """What came of each line: the answer, or what is wrong."""
    out = []
    for line in read_lines(str(path)):
        try:
            out.append(str(parse(line)["answer"]))
        except BadLine as err:
            out.append(str(err))
    return out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.jsonl", f"{GOOD}\n{TWICE}\n{GOOD}\n"),
        ("c.json", f"[{GOOD},\n{TWICE},\n{GOOD}]"),
        ("d.json", f'{{"samples": [\n{GOOD},\n{TWICE},\n{GOOD}]}}'),
    ],
)
def test_the_line_that_says_a_key_twice_is_broken_and_the_others_are_not(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert read(tmp_path / name) == ["5", "key `answer` is said twice", "5"]


def test_one_object_that_says_a_key_twice_is_broken(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(TWICE)
    assert read(tmp_path / "c.json") == ["key `answer` is said twice"]


def test_rows_with_golds_that_say_a_key_twice_are_refused_with_their_place(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "1", "answer": "5"}\n{"id": "2", "answer": "5", "answer": "6"}\n')
    with pytest.raises(DataError, match="key `answer` is said twice") as caught:
        GoldRows(str(rows))
    assert caught.value.mistakes[0].place.endswith("rows.jsonl:2")
