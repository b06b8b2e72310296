"""`data.where`, `data.on_null` and what `data.train` and `data.eval` may name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.rows import load_rows
from grpo_cli.data.template import FillError, TemplateError
from grpo_cli.data.where import parse_where
from grpo_cli.errors import DataError, RecipeError
from tests.builders.data_builders import Data, Source, question, write_lines

ROW: dict[str, Any] = {
    "level": 3, "source": "amc", "ok": True, "none": None, "text": "Level 5", "list": [1, "b"], "meta": {"x": 0.5},
    "a name": "y",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("level >= 3", True),
        ("level > 3 or source == 'amc'", True),
        ("source in ['amc', 'aime'] and not level == 2", True),
        ("source not in ['amc']", False),
        ("ok", True),
        ("not ok", False),
        ("none == null", True),
        ("none is null", True),
        ("none > 1", False),
        ("level != null", True),
        ("'5' in text", True),
        ('text == "Level 5"', True),
        ("len(list) == 2 and 'b' in list", True),
        ("list[1] == 'b'", True),
        ("meta.x < 1 and meta['x'] > 0", True),
        ("1 < level < 4", True),
        ("level / 2 + 1 > 2.4", True),
        ("level == -3", False),
        ("lower(text) == 'level 5'", True),
        ("column('a name') == 'y'", True),
        ("(level == 3) == true", True),
    ],
)
def test_an_expression_keeps_a_row(text: str, kept: bool) -> None:
    assert parse_where(text).keeps(ROW) is kept


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')", "level.__class__()", "[x for x in list]", "lambda: 1", "open('f')", "f'{level}'",
        "level if ok else 1", "level ** 99", "level = 3", "level && ok", "", "(", "a := 1", "len(list, 1)", "'a' 'b' % 1",
        "x" * 3000, "(" * 900, "\0",
    ],
)  # fmt: skip
def test_what_is_no_comparison_of_columns_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        parse_where(text)


@pytest.mark.parametrize(
    "text",
    [
        "text > 3",
        "level > '3'",
        "level",
        "text",
        "nowhere == 1",
        "3 in text",
        "1 in level",
        "text + 1 > 2",
        "level / 0 > 1",
    ],
)
def test_values_that_do_not_fit_are_an_error_of_the_row_and_never_a_no(text: str) -> None:
    with pytest.raises(FillError):
        parse_where(text).keeps(ROW)


def test_names_of_python_mean_nothing() -> None:
    with pytest.raises(FillError, match="no column `__builtins__`"):
        parse_where("__builtins__ == 1").keeps(ROW)


def load(folder: Path, lines: list[dict[str, Any]], **said: Any) -> tuple[list[str], list[str]]:
    write_lines(folder / "a.jsonl", lines)
    notes: list[str] = []
    rows = load_rows(Data([Source("a.jsonl")], **said), "train", folder, notes.append)
    return [row.place for row in rows], notes


def test_where_keeps_rows_and_says_how_many(tmp_path: Path) -> None:
    lines = [question(n, level=n) for n in range(1, 6)]
    assert load(tmp_path, lines, where="level > 3") == (
        ["a.jsonl:4", "a.jsonl:5"],
        ["train: `data.where` keeps 2 of 5 rows"],
    )
    with pytest.raises(DataError, match="no row is left") as caught:
        load(tmp_path, lines, where="level > 9")
    assert "`level` is 1" in caught.value.hint
    with pytest.raises(DataError, match="no column `levl` in 5 of 5 rows"):
        load(tmp_path, lines, where="levl > 9")
    with pytest.raises(RecipeError):
        load(tmp_path, lines, where="level >")


def test_rows_with_a_null_are_an_error_or_dropped_and_counted(tmp_path: Path) -> None:
    lines = [
        question(1),
        question(2) | {"answer": None},
        question(3) | {"question": None},
        question(4) | {"question": " "},
    ]
    with pytest.raises(DataError) as caught:
        load(tmp_path, lines, answer="{answer}")
    assert len(caught.value.mistakes) == 3
    assert "on_null: drop" in caught.value.hint
    for answer in ("{answer}", None):
        places, notes = load(tmp_path, lines, answer=answer, on_null="drop")
        assert places == ["a.jsonl:1"]
        assert notes == ["train: dropped 3 of 4 rows with a null, first a.jsonl:2: `answer` is null"]


def test_a_pattern_is_all_files_that_match_in_order(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for n in (2, 1, 10):
        write_lines(tmp_path / "parts" / f"p{n:02}.jsonl", [question(n)])
    rows = load_rows(Data([Source("parts/*.jsonl", limit=2)]), "train", tmp_path)
    assert [row.place for row in rows] == ["parts/p01.jsonl:1", "parts/p02.jsonl:1"]
    with pytest.raises(DataError, match="no file matches"):
        load_rows(Data([Source("parts/*.csv")]), "train", tmp_path)


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path: Path) -> None:
    write_lines(tmp_path / "rows[1].jsonl", [question()])
    assert len(load_rows(Data([Source("rows[1].jsonl")]), "train", tmp_path)) == 1


def test_several_held_out_files_are_put_together(tmp_path: Path) -> None:
    for name in "ab":
        write_lines(tmp_path / f"{name}.jsonl", [question(1), question(2)])
    data = Data([Source("a.jsonl")], eval=[Source("a.jsonl"), Source("b.jsonl", limit=1)])
    assert sorted(row.place for row in load_rows(data, "eval", tmp_path)) == ["a.jsonl:1", "a.jsonl:2", "b.jsonl:1"]


def test_a_folder_of_save_to_disk_is_read_by_split(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    one = datasets.Dataset.from_list([question(1), question(2)])
    datasets.DatasetDict({"train": one, "test": one.select([0])}).save_to_disk(str(tmp_path / "both"))
    one.save_to_disk(str(tmp_path / "one"))
    data = Data([Source("both")], eval=Source("both"))
    assert [row.place for row in load_rows(data, "train", tmp_path)] == ["both:row 1", "both:row 2"]
    assert len(load_rows(data, "eval", tmp_path)) == 1
    assert len(load_rows(Data([Source("one", skip=1)]), "train", tmp_path)) == 1
    assert len(load_rows(Data([Source("both", options={"split": "test"})]), "train", tmp_path)) == 1
    with pytest.raises(DataError, match="no split `dev`"):
        load_rows(Data([Source("both", options={"split": "dev"})]), "train", tmp_path)


@pytest.mark.parametrize("name", ["openai/gsm8k", "squad", "allenai/ai2_arc"])
def test_a_bare_hub_name_is_told_how_to_say_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        load_rows(Data([Source(name)]), "train", tmp_path)
    assert f"`hub:{name}`" in caught.value.hint


def test_another_folder_is_told_how_to_name_its_files(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    write_lines(tmp_path / "rows" / "a.jsonl", [question()])
    with pytest.raises(DataError) as caught:
        load_rows(Data([Source("rows")]), "train", tmp_path)
    assert "`rows/*.jsonl`" in caught.value.hint


def test_a_recipe_takes_lists_of_held_out_files(tmp_path: Path) -> None:
    from grpo_cli.recipe.reading.load import load as load_recipe

    said = {
        "model": "m",
        "data": {"train": "a.jsonl", "prompt": "{q}", "eval": ["a.jsonl", {"from": "b.jsonl", "limit": 3}]},
    }
    file = tmp_path / "r.yaml"
    file.write_text(json.dumps(said | {"verify": {"math": {}}, "train": {"steps": 1}}))
    found = load_recipe(file).data.eval
    assert isinstance(found, list)
    assert [source.source for source in found] == ["a.jsonl", "b.jsonl"]
    for wrong, words in (
        ({"frm": "x"}, "did you mean `from`"),
        ([{"from": "x", "limt": 1}], "did you mean `limit`"),
        (3, "a source"),
    ):
        file.write_text(
            json.dumps(said | {"data": said["data"] | {"eval": wrong}, "verify": {"math": {}}, "train": {"steps": 1}})
        )
        with pytest.raises(RecipeError) as caught:
            load_recipe(file)
        assert words in str(caught.value) + caught.value.hint
