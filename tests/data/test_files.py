from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from grpo_cli.data.files import BrokenFile, Record, read_file
from grpo_cli.data.rows import load_rows
from grpo_cli.errors import DataError, SetupError
from tests.builders.data_builders import Data, Source, question, write_lines

LINES = b'{"question": "a"}\n\n{"question": "b"}\n'
FIELDS = [{"question": "a"}, {"question": "b"}]


def read(path: Path, content: bytes | None = None) -> list[Record | BrokenFile]:
    if content is not None:
        path.write_bytes(content)
    return list(read_file(path, path.name))


def fields(items: list[Record | BrokenFile]) -> list[dict[str, object]]:
    assert all(isinstance(item, Record) for item in items), items
    return [item.fields for item in items if isinstance(item, Record)]


def why(items: list[Record | BrokenFile]) -> list[str]:
    return [f"{item.place}: {item.why}" for item in items if isinstance(item, BrokenFile)]


def test_json_lines_keep_their_line_numbers_over_blank_lines(tmp_path: Path) -> None:
    items = read(tmp_path / "a.jsonl", LINES)
    assert fields(items) == FIELDS
    assert [item.place for item in items] == ["a.jsonl:1", "a.jsonl:3"]


def test_a_byte_order_mark_and_carriage_returns_do_no_harm(tmp_path: Path) -> None:
    assert fields(read(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n"))) == FIELDS


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    assert fields(read(tmp_path / "a.jsonl", LINES.rstrip())) == FIELDS


def test_packed_lines_are_unpacked(tmp_path: Path) -> None:
    import zstandard

    assert fields(read(tmp_path / "a.jsonl.gz", gzip.compress(LINES))) == FIELDS
    assert fields(read(tmp_path / "a.jsonl.zst", zstandard.ZstdCompressor().compress(LINES))) == FIELDS


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.csv.gz", "a.parquet"])
def test_a_damaged_archive_is_one_clear_error(tmp_path: Path, name: str) -> None:
    import zstandard

    packed = zstandard.ZstdCompressor().compress(LINES * 99) if name.endswith("zst") else gzip.compress(LINES * 99)
    for content in (b"this is no archive", packed[:10] + b"\xff" * 10 + packed[20:]):
        with pytest.raises(DataError) as caught:
            read(tmp_path / name, content)
        assert caught.value.mistakes[0].place == name


def test_a_json_file_may_be_one_array(tmp_path: Path) -> None:
    items = read(tmp_path / "a.json", b'[\n {"question": "a"},\n {"question": "b"}, 3]')
    assert fields(items[:2]) == FIELDS
    assert why(items) == ["a.json:item 3: expected an object, got a number"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": 1', "broken JSON: expecting ',' delimiter at column 8"),
        (b"hello", "broken JSON: expecting value at column 1"),
        (b'"text"', "expected an object, got a string"),
        (b"[1]", "expected an object, got a list"),
        (b"null", "expected an object, got null"),
        (b'{"a": NaN}', "NaN is not JSON; write null"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 8"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair (\\ud800 to \\udfff), which is no character"),
        (b"\0\0\0\0", "NUL bytes: the file was cut off by a crash, or is no text file"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "a number of more digits than can be read; write it as a string"),
    ],
)
def test_a_broken_line_has_its_number_and_a_reason(tmp_path: Path, line: bytes, reason: str) -> None:
    items = read(tmp_path / "a.jsonl", b'{"question": "a"}\n' + line + b"\n" + b'{"question": "b"}')
    assert why(items) == [f"a.jsonl:2: {reason}"]
    assert len(items) == 3


def test_an_escaped_pair_of_surrogates_is_a_character(tmp_path: Path) -> None:
    assert fields(read(tmp_path / "a.jsonl", b'{"a": "\\ud83d\\ude00"}')) == [{"a": "😀"}]


def test_all_broken_lines_are_reported_and_ten_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"question": "a"}\n' + b"oops\n" * 25)
    with pytest.raises(DataError) as caught:
        load_rows(Data([Source("a.jsonl")]), "train", tmp_path)
    assert len(caught.value.mistakes) == 25
    assert caught.value.render().count("error:") == 10
    assert "… and 15 more" in caught.value.render()
    assert caught.value.code == 3


def test_lines_beyond_the_limit_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINES + b"oops\n")
    assert len(load_rows(Data([Source("a.jsonl", limit=2)]), "train", tmp_path)) == 2


@pytest.mark.parametrize("content", [b"", b"\n\n  \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"`a\.jsonl` is empty"):
        load_rows(Data([Source("a.jsonl")]), "train", tmp_path)


def test_csv_cells_may_hold_line_breaks_and_quotes(tmp_path: Path) -> None:
    items = read(tmp_path / "a.csv", b'\xef\xbb\xbfquestion,answer\r\n"1\r\n+1, ""so""",2\r\n\r\nx,3\r\n')
    assert fields(items) == [{"question": '1\r\n+1, "so"', "answer": "2"}, {"question": "x", "answer": "3"}]
    assert [item.place for item in items] == ["a.csv:2", "a.csv:5"]


def test_tsv_is_csv_with_tabs(tmp_path: Path) -> None:
    assert fields(read(tmp_path / "a.tsv", b"a\tb\n1\t2\n")) == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a,b\n1\n", "a.csv:2: 1 cells, but the header has 2"),
        (b"a,b\n1,2,3\n", "a.csv:2: 3 cells, but the header has 2"),
        (b"a,a\n1,2\n", "a.csv:1: the header names `a` twice"),
        (b"a,b\n1,\xff\n", "a.csv:2: not UTF-8"),
        (b'a,b\n1,"2\n', "a.csv:2: broken CSV: unexpected end of data"),
    ],
)
def test_a_broken_table_row_has_its_number_and_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    assert why(read(tmp_path / "a.csv", content)) == [reason]


def test_parquet_values_come_in_types_json_has(tmp_path: Path) -> None:
    import datetime
    import decimal

    import pyarrow as arrow
    from pyarrow import parquet

    rows = [
        {"q": "a", "n": 1, "x": float("nan"), "d": datetime.date(2020, 1, 2), "c": decimal.Decimal("1.50"), "l": ["y"]}
    ]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    items = read(tmp_path / "a.parquet")
    assert fields(items) == [{"q": "a", "n": 1, "x": None, "d": "2020-01-02", "c": "1.50", "l": ["y"]}]
    assert items[0].place == "a.parquet:row 1"


def test_an_unknown_kind_of_file_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"known: \.jsonl, \.csv, \.tsv, \.parquet"):
        read(tmp_path / "a.xlsx", b"")


def test_a_file_that_may_not_be_read_is_a_matter_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SetupError, match="no permission"):
        read(tmp_path / "a.jsonl")


def test_a_missing_file_names_the_near_one_and_where_it_looked(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.jsonl", [question()])
    with pytest.raises(DataError, match=r"no file `trian.jsonl`; did you mean `train.jsonl`\?") as caught:
        load_rows(Data([Source("trian.jsonl")]), "train", tmp_path)
    assert str(tmp_path) in caught.value.hint


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        load_rows(Data([Source("data")]), "train", tmp_path)


def test_broken_lines_of_all_sources_are_named_at_once(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(b"oops")
    with pytest.raises(DataError) as caught:
        load_rows(Data([Source("a.jsonl"), Source("b.jsonl")]), "train", tmp_path)
    assert [m.place for m in caught.value.mistakes] == ["a.jsonl:1", "b.jsonl:1"]


def test_a_key_said_twice_is_refused_at_its_place(tmp_path: Path) -> None:
    """Also deep inside, spelled otherwise, packed, and in an array, where the items without one stay."""
    twice = [
        b'{"question": "a", "answer": "1", "answer": "2"}',
        b'{"question": "a", "meta": {"x": [{"y": 1, "y": 1}]}}',
        b'{"question": "a", "\\u0071uestion": "b"}',
    ]
    keys = ["answer", "y", "question"]
    lines = b"\n".join([b'{"question": "a"}', *twice, b'{"question": "b"}'])
    array = b"[" + b",\n".join([b'{"question": "a"}', *twice, b'{"question": "b"}']) + b"]"
    for name, content, place in (
        ("a.jsonl", lines, "a.jsonl:"),
        ("a.jsonl.gz", gzip.compress(lines), "a.jsonl.gz:"),
        ("a.json", array, "a.json:item "),
    ):
        items = read(tmp_path / name, content)
        assert [item.fields for item in items if isinstance(item, Record)] == FIELDS
        assert why(items) == [f"{place}{number}: key `{key}` is said twice" for number, key in enumerate(keys, start=2)]


def test_the_same_key_in_several_objects_is_fine(tmp_path: Path) -> None:
    value = b'{"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": 1}}\n'
    assert fields(read(tmp_path / "a.jsonl", value)) == [{"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": 1}}]
