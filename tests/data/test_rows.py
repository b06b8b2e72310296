from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_cli.data.rows import load_rows
from grpo_cli.errors import DataError, RecipeError
from tests.builders.data_builders import Data, Source, question, write_lines


def test_columns_fill_the_prompt_and_the_answer(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(2, answer="2+2\n#### 4")])
    data = Data([Source("a.jsonl")], prompt="Q: {question}", answer="{answer | after('####')}", system="be brief")
    (row,) = load_rows(data, "train", tmp_path)
    assert row.prompt == "Q: what is 2+2?"
    assert row.messages == [{"role": "system", "content": "be brief"}, {"role": "user", "content": row.prompt}]
    assert row.fields == {"question": "what is 2+2?", "answer": "4"}
    assert row.place == "a.jsonl:1"


def test_plain_rows_have_no_messages(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question()])
    (row,) = load_rows(Data([Source("a.jsonl")], plain=True, system="S"), "train", tmp_path)
    assert row.messages is None
    assert row.prompt == "S\n\nwhat is 1+1?"


def test_a_prompt_column_of_messages_is_taken_as_it_is(tmp_path: Path) -> None:
    chat = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "2?"},
    ]
    write_lines(tmp_path / "a.jsonl", [{"prompt": chat}])
    (row,) = load_rows(Data([Source("a.jsonl")], prompt="{prompt}", system="S"), "train", tmp_path)
    assert row.messages == [{"role": "system", "content": "S"}, *chat]
    assert row.prompt == "hi\n\nhello\n\n2?"


@pytest.mark.parametrize(
    ("chat", "words"),
    [
        ([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "leave it out"),
        ([{"role": "robot", "content": "q"}], "role `robot`"),
        ([{"role": "user"}], "message 1"),
        ([{"role": "user", "content": 3}], "no text"),
        ([], "no user turn"),
    ],
)
def test_a_bad_message_list_is_refused(tmp_path: Path, chat: list[object], words: str) -> None:
    write_lines(tmp_path / "a.jsonl", [{"prompt": chat}])
    with pytest.raises(DataError, match=words):
        load_rows(Data([Source("a.jsonl")], prompt="{prompt}"), "train", tmp_path)


def test_turns_of_sharegpt_are_read_as_messages(tmp_path: Path) -> None:
    names = [("system", "be brief"), ("human", "hi"), ("gpt", "hello"), ("observation", "42"), ("user", "2?")]
    turns = [{"from": name, "value": text} for name, text in names]
    write_lines(tmp_path / "a.jsonl", [{"conversations": turns, "answer": "2"}])
    (row,) = load_rows(Data([Source("a.jsonl")], prompt="{conversations}"), "train", tmp_path)
    assert row.messages is not None
    roles = ["system", "user", "assistant", "tool", "user"]
    assert [(m["role"], m["content"]) for m in row.messages] == list(
        zip(roles, [text for _, text in names], strict=True)
    )
    assert all(set(message) == {"role", "content"} for message in row.messages)


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        ({"from": "narrator", "value": "x"}, "has the role `narrator`"),
        ({"from": "human", "value": {"x": 1}}, "has content that is no text"),
        ({"from": "human", "text": "x"}, "or with `from` and `value`"),
    ],
)
def test_other_turns_are_refused_by_what_is_known(tmp_path: Path, turn: object, words: str) -> None:
    write_lines(tmp_path / "a.jsonl", [{"conversations": [turn]}])
    with pytest.raises(DataError, match=words):
        load_rows(Data([Source("a.jsonl")], prompt="{conversations}"), "train", tmp_path)


@pytest.mark.parametrize(
    ("source", "words", "mend"),
    [
        ("rows.py:f", "`rows.py:f` is Python code", "write its rows to a file"),
        ("lib/rows.py:make", "is Python code", "write its rows to a file"),
        ("pkg.mod:f", "there is no source `pkg.mod:`", "is it a Python function"),
        ("task:addition3", "there is no source `task:`; did you mean `tasks`", ""),
    ],
)
def test_a_function_is_not_asked_for_rows_and_the_way_is_said(
    tmp_path: Path, source: str, words: str, mend: str
) -> None:
    (tmp_path / "rows.py").write_text("def f():\n    return []\n")
    with pytest.raises(RecipeError) as caught:
        load_rows(Data([Source(source)]), "train", tmp_path)
    assert words in str(caught.value) and mend in caught.value.hint
    assert caught.value.mistakes[0].place == "data.train"


def test_a_file_may_have_a_name_with_a_colon(tmp_path: Path) -> None:
    write_lines(tmp_path / "mod:f.jsonl", [question()])
    assert len(load_rows(Data([Source("mod:f.jsonl")]), "train", tmp_path)) == 1


def test_a_key_that_some_rows_lack_is_null_there(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(1), {"question": "q"}, question(3)])
    named = Data([Source("a.jsonl")], answer="{answer}")
    with pytest.raises(DataError, match="no column `answer`") as caught:
        load_rows(named, "train", tmp_path)
    assert "`data.on_null: drop`" in caught.value.hint
    notes: list[str] = []
    dropping = Data([Source("a.jsonl")], answer="{answer}", on_null="drop")
    assert len(load_rows(dropping, "train", tmp_path, notes.append)) == 2
    assert notes == ["train: dropped 1 of 3 rows with a null, first a.jsonl:2: no column `answer`"]


@pytest.mark.parametrize("field", ["prompt", "answer"])
def test_a_key_that_no_row_has_is_a_mistake_whatever_is_dropped(tmp_path: Path, field: str) -> None:
    write_lines(tmp_path / "a.jsonl", [question(1), question(2)])
    data = Data([Source("a.jsonl")], on_null="drop", **{field: "{gone}"})  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no column `gone` in 2 of 2 rows"):
        load_rows(data, "train", tmp_path)


@pytest.mark.parametrize(("gold", "text"), [(72, "72"), (1.5, "1.5"), (True, "true"), ("x", "x")])
def test_a_gold_that_is_a_number_becomes_text(tmp_path: Path, gold: object, text: str) -> None:
    write_lines(tmp_path / "a.jsonl", [question(answer=gold)])
    assert load_rows(Data([Source("a.jsonl")]), "train", tmp_path)[0].fields["answer"] == text


def test_extra_columns_keep_their_type(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(meta={"tests": ["assert 1"]}, level=3)])
    data = Data([Source("a.jsonl")], columns={"tests": "meta.tests", "label": "L{level}"})
    fields = load_rows(data, "train", tmp_path)[0].fields
    assert fields["tests"] == ["assert 1"]
    assert fields["label"] == "L3"


def test_ids_do_not_depend_on_templates_or_on_the_order_of_columns(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "q", "answer": "1"}\n')
    (tmp_path / "b.jsonl").write_text('{"answer": "1", "question": "q"}\n')
    first = load_rows(Data([Source("a.jsonl")]), "train", tmp_path)[0].id
    second = load_rows(Data([Source("b.jsonl")], prompt="Now: {question}"), "train", tmp_path)[0].id
    assert first == second
    assert len(first) == 12


def test_rows_of_equal_content_are_numbered(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(), question(2), question()])
    first, _, third = load_rows(Data([Source("a.jsonl")]), "train", tmp_path)
    assert third.id == f"{first.id}-2"


def test_a_declared_id_is_used(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(n=7), question(2, n=8)])
    assert [r.id for r in load_rows(Data([Source("a.jsonl")], id="n"), "train", tmp_path)] == ["7", "8"]


def test_a_declared_id_that_comes_twice_is_an_error(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(n=7), question(2, n=7)])
    with pytest.raises(DataError, match=r"id `7` stands in a.jsonl:1 already") as caught:
        load_rows(Data([Source("a.jsonl")], id="n"), "train", tmp_path)
    assert caught.value.mistakes[0].place == "a.jsonl:2"


def test_all_bad_templates_are_named_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        load_rows(Data([], prompt="{q | foo}", answer="{"), "train")
    assert [m.place for m in caught.value.mistakes] == ["data.prompt", "data.answer"]
    assert "    {q | foo}\n         ^" in caught.value.render()


def test_a_missing_column_is_said_once_with_its_count(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(i) for i in range(50)])
    with pytest.raises(DataError) as caught:
        load_rows(Data([Source("a.jsonl")], prompt="{questoin}"), "train", tmp_path)
    assert caught.value.render() == "error: a.jsonl:1: no column `questoin` in 50 of 50 rows; did you mean `question`?"


def test_every_row_that_cannot_be_filled_is_named(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(answer=f"#### {i}" if i % 2 else "none") for i in range(30)])
    with pytest.raises(DataError) as caught:
        load_rows(Data([Source("a.jsonl")], answer="{answer | after('####')}"), "train", tmp_path)
    assert len(caught.value.mistakes) == 15
    assert "a.jsonl:3: `answer` has no '####' in 'none'" in caught.value.render()
    assert "… and 5 more" in caught.value.render()


def test_an_empty_prompt_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"question": "  "}])
    with pytest.raises(DataError, match="prompt is empty"):
        load_rows(Data([Source("a.jsonl")]), "train", tmp_path)


def test_limit_and_skip_count_rows_of_the_source(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(i) for i in range(10)])
    rows = load_rows(Data([Source("a.jsonl", skip=3, limit=2)]), "train", tmp_path)
    assert [r.place for r in rows] == ["a.jsonl:4", "a.jsonl:5"]


def test_skipping_everything_is_an_error(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question()])
    with pytest.raises(DataError, match="no row after `skip: 5`"):
        load_rows(Data([Source("a.jsonl", skip=5)]), "train", tmp_path)


def test_weights_say_how_often_a_row_stands_in_the_mix(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"question": f"a{i}"} for i in range(10)])
    write_lines(tmp_path / "b.jsonl", [{"question": f"b{i}"} for i in range(10)])
    rows = load_rows(Data([Source("a.jsonl", weight=2.0), Source("b.jsonl", weight=0.5)]), "train", tmp_path)
    assert sum(r.prompt.startswith("a") for r in rows) == 20
    assert [r.prompt for r in rows if r.prompt.startswith("b")] == ["b1", "b3", "b5", "b7", "b9"]
    assert len({r.id for r in rows}) == 25


def test_a_prefix_of_the_mix_has_its_proportions(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"question": f"a{i}"} for i in range(90)])
    write_lines(tmp_path / "b.jsonl", [{"question": f"b{i}"} for i in range(30)])
    rows = load_rows(Data([Source("a.jsonl"), Source("b.jsonl")]), "train", tmp_path)
    assert sum(r.prompt.startswith("b") for r in rows[:40]) == 10


def test_the_eval_source_is_read_for_eval(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(1)])
    write_lines(tmp_path / "b.jsonl", [question(2)])
    data = Data([Source("a.jsonl")], eval=Source("b.jsonl"))
    assert load_rows(data, "eval", tmp_path)[0].fields["answer"] == "4"


def test_a_recipe_without_eval_says_so() -> None:
    with pytest.raises(RecipeError, match=r"no `data.eval`"):
        load_rows(Data([]), "eval")


def test_fields_can_be_written_back_as_json(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [question(meta={"a": [1, None]})])
    (row,) = load_rows(Data([Source("a.jsonl")]), "train", tmp_path)
    assert json.loads(json.dumps(row.fields)) == row.fields
