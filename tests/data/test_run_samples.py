"""The source `run:NAME`: which samples of a run are rows, how often, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.audit import refuse_held_out
from grpo_cli.data.rows import load_rows
from grpo_cli.errors import DataError, RecipeError
from grpo_cli.recipe.sections.recipe import Data, Source
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Outcome

R, W = Outcome.RIGHT, Outcome.WRONG


def sample(
    row: str, text: str, outcome: Outcome = R, *, tokens: int = 5, cut: bool = False, **more: Any
) -> SampleRecord:
    fields = {"question": f"ask {row}", "answer": f"gold {row}", **more}
    return SampleRecord(1, row, "1/0", f"ask {row}", text, fields, outcome=outcome, tokens=tokens, truncated=cut)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    found = RunFolder.create("runs", "rl", "", {})
    a = [sample("a", f"a{i}", tokens=9 - i) for i in range(5)]
    found.write_samples(
        1, [*a, sample("a", "a0"), sample("b", "b0"), sample("c", "c0", W), sample("c", "c1", cut=True)]
    )
    found.write_samples(2, [sample("b", "b0"), sample("d", "d d d d d d d d d"), sample("e", "это")])
    found.write_samples(2, [sample("held", "h0")], "eval")
    return found


def texts(**options: Any) -> list[tuple[str, str]]:
    data = Data(
        train=[Source(source="run:rl", options=options)],
        prompt="{question}",
        answer="{answer | after('####')}",  # has been taken already: it would fail here
        columns={"twice": "{question} {missing}"},
    )
    return [(row.id.split("-")[0], row.fields["completion"]) for row in load_rows(data, "train")]


def test_rows_come_with_their_right_whole_distinct_samples_each_row_as_often(run: RunFolder) -> None:
    found = texts(a_row=4)
    assert Counter(row for row, _ in found) == {"a": 4, "b": 4, "d": 4, "e": 4}
    assert {text for row, text in found if row == "a"} == {"a0", "a1", "a2", "a3"}
    assert len({text for row, text in found if row in "abc"}) == 4 + 1 + 0  # of a, b and c
    assert texts(a_row=1) == [("a", "a0"), ("b", "b0"), ("d", "d d d d d d d d d"), ("e", "это")]


def test_options_choose_among_them(run: RunFolder) -> None:
    assert [text for row, text in texts(a_row=2, shortest=True) if row == "a"] == ["a4", "a3"]
    assert set(texts(a_row=1, language="LATIN")) == {("a", "a0"), ("b", "b0"), ("d", "d d d d d d d d d")}
    assert ("d", "d d d d d d d d d") not in texts(a_row=1, repetition=0.2)
    assert {row for row, _ in texts(since=2)} == {"b", "d", "e"}
    assert texts(only="wrong", a_row=1) == [("c", "c0")]


def test_ids_are_those_of_the_run_and_golds_are_not_taken_twice(run: RunFolder) -> None:
    data = Data(train=[Source(source="run:runs/rl", options={"a_row": 2})], prompt="{question}", id="{question}")
    rows = load_rows(data, "train")
    assert [row.id for row in rows[:2]] == ["a", "a-2"]
    assert rows[0].fields["answer"] == "gold a" and rows[0].prompt == "ask a"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"best": 1}, "unknown option `best`"),
        ({"only": "good"}, "`right` or `wrong`"),
        ({"a_row": 0}, "at least 1"),
        ({"a_row": True}, "at least 1"),
        ({"repetition": 2}, "between 0 and 1"),
        ({"since": -1}, "must be a step"),
        ({"shortest": 1}, "`true` or `false`"),
    ],
)
def test_options_that_cannot_be_meant_are_recipe_mistakes(run: RunFolder, options: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        texts(**options)


@pytest.mark.parametrize("odd", [{"fields": [1]}, {"fields": "x"}, {"tokens": "long"}], ids=str)
def test_a_line_that_is_no_sample_is_named_by_its_place(run: RunFolder, odd: dict[str, Any]) -> None:
    path = run.sample_path(1)
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | odd), *rest]) + "\n")
    with pytest.raises(DataError, match="no sample of a run") as caught:
        texts(shortest=True)
    assert caught.value.mistakes[0].place.endswith("step-000001.jsonl:1")


def test_a_run_that_is_not_there_or_has_nothing_to_give_is_a_data_error(run: RunFolder) -> None:
    data = Data(train=[Source(source="run:rk")], prompt="{question}")
    with pytest.raises(DataError, match="no run `rk`; known: rl"):
        load_rows(data, "train")
    with pytest.raises(DataError, match=r"none of 0 samples|none of \d+ samples of `run:rl` is right"):
        texts(since=9)


def test_samples_of_held_out_rows_are_refused(run: RunFolder) -> None:
    rows = load_rows(Data(train=[Source(source="run:rl")], prompt="{question}"), "train")
    held_out = load_rows(Data(train=[Source(source="run:rl")], prompt="{question}"), "train")[:1]
    refuse_held_out(rows, [], "run:rl")
    with pytest.raises(DataError, match="samples of 1 held-out rows, first row `a`"):
        refuse_held_out(rows, held_out, "run:rl")
