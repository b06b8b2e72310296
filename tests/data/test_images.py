"""Rows with images: where images may come from, and one line for each that is refused."""

from __future__ import annotations

import json
import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from grpo_cli.data.images import Blob, placed, with_blocks
from grpo_cli.data.rows import Row, load_rows
from grpo_cli.data.tasks.squares import rows as squares
from grpo_cli.errors import DataError
from grpo_cli.recipe.sections.inputs import Data


def encoded(kind: str = "PNG", size: tuple[int, int] = (40, 30), mode: str = "RGB", **more: Any) -> bytes:
    out = BytesIO()
    Image.new(mode, size, 128).save(out, kind, **more)
    return out.getvalue()


def animated() -> bytes:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    out = BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    return out.getvalue()


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def loaded(path: Path, **more: Any) -> list[Row]:
    keys = {"prompt": "{q}", "answer": "1", "images": "image"} | more
    return load_rows(Data.model_validate({"train": [{"from": str(path)}]} | keys), "train")


def refusals(path: Path, **more: Any) -> list[str]:
    with pytest.raises(DataError) as caught:
        loaded(path, **more)
    return [f"{one.place.rpartition('/')[2]}: {one.message}" for one in caught.value.mistakes]


def test_each_bad_file_is_one_mistake_with_its_line(tmp_path: Path) -> None:
    good = encoded()
    files = {
        "good.png": good,
        "empty.png": b"",
        "cut.png": encoded(size=(300, 300), mode="L")[:60],
        "text.png": b"no image at all",
        "huge.png": encoded(size=(10_000, 10_000), mode="1"),
        "moves.gif": animated(),
        "deep.png": encoded(mode="I;16"),
        "thin.png": encoded(size=(401, 2)),
        "heavy.png": good + b"-" * 20_000_000,
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "inside").mkdir()
    names = [*files, "missing.png", "inside", "../good.png", "https://a.example/b.png", "data:image/png;base64,AA", ""]
    found = refusals(written(tmp_path, *({"q": "what?", "image": name} for name in names)))
    assert [line.split(":")[1] for line in found] == [str(i) for i in range(2, len(names) + 1)]
    wanted = [
        *("is empty", "is broken", "is no image of a kind", "has 100.0 megapixels (10,000 x 10,000)"),
        *("is animated or has pages (2)", "more than 8 bits", "401 x 2", "more than 20 MB", "no image `missing.png`"),
        *("Is a directory", "outside the folder", "is an address", "is an address", "is empty"),
    ]
    for line, words in zip(found, wanted, strict=True):
        assert words in line


def test_a_good_file_beside_bad_ones_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(encoded("JPEG", mode="CMYK"))
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera that was held upright
    (tmp_path / "b.jpg").write_bytes(encoded("JPEG", exif=exif))
    (row,) = loaded(written(tmp_path, {"q": "what?", "image": ["a.jpg", "b.jpg"]}))
    assert [(one.width, one.height, one.name) for one in row.images] == [(40, 30, "a.jpg"), (30, 40, "b.jpg")]
    assert {one.picture().mode for one in row.images} == {"RGB"}
    assert row.prompt == "<image><image>what?"
    (tmp_path / "a.jpg").write_bytes(encoded())
    with pytest.raises(DataError, match="has changed"):
        row.images[0].picture()


def test_bytes_of_a_parquet_column_are_shown_and_only_their_hash_is_kept(tmp_path: Path) -> None:
    import pyarrow as arrow
    from pyarrow.parquet import write_table

    content = [encoded(size=(8, 8)), encoded(size=(9, 8))]
    table = {"q": ["one", "two"], "plain": content, "image": [{"bytes": one, "path": "x.png"} for one in content]}
    write_table(arrow.table(table), tmp_path / "rows.parquet")
    for column in ("image", "plain", "{image}"):
        rows = loaded(tmp_path / "rows.parquet", images=column)
        assert [row.images[0].width for row in rows] == [8, 9]
    assert "PNG" not in json.dumps([row.fields for row in rows])
    assert rows[0].fields["plain"] == f"sha256:{rows[0].images[0].sha256}"
    assert type(pickle.loads(pickle.dumps(rows[0].fields["plain"]))) is str
    assert rows[0].id != rows[1].id and rows[0].question != rows[1].question
    table["image"][1]["bytes"] = b"text"
    write_table(arrow.table(table), tmp_path / "rows.parquet")
    assert refusals(tmp_path / "rows.parquet", images="image") == [
        "rows.parquet:row 2: `x.png` is no image of a kind that is read: PNG, JPEG, WEBP, GIF, BMP, TIFF"
    ]


def test_a_data_set_of_the_library_gives_bytes_not_pictures(tmp_path: Path) -> None:
    from datasets import Dataset, Features, List, Value
    from datasets import Image as Picture

    kinds = Features({"q": Value("string"), "image": Picture(), "more": List(Picture())})
    one = {"bytes": encoded(), "path": None}
    Dataset.from_list([{"q": "what?", "image": one, "more": [one, one]}], features=kinds).save_to_disk(
        str(tmp_path / "set")
    )
    (row,) = loaded(tmp_path / "set", images=["image", "more"])
    assert len(row.images) == 3 and len(set(row.images)) == 1


@pytest.mark.parametrize(
    "columns", [{"image": "a.png"}, {"images": ["a.png"]}, {"photo_1": {"path": "a.png"}}, {"file_name": "a.JPG"}]
)
def test_a_column_of_images_that_no_key_names_is_never_text(tmp_path: Path, columns: dict[str, Any]) -> None:
    path = written(tmp_path, {"q": "what?", **columns})
    (line,) = refusals(path, images=None)
    assert f"the column `{next(iter(columns))}` holds images" in line
    assert loaded(path, images=[])[0].prompt == "what?"


def test_columns_of_words_about_images_are_text(tmp_path: Path) -> None:
    path = written(tmp_path, {"q": "what?", "image": "python:3.11", "answer_file": "a.png", "image_count": 3})
    assert loaded(path, images=None)[0].images == ()


def test_marks_say_where_an_image_stands(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded())
    chat = [
        {"role": "system", "content": "Look."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "left "}, {"type": "image"}, {"type": "text", "text": " right"}],
        },
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "and now?"},
    ]
    path = written(tmp_path, {"q": chat, "image": "a.png"})
    (row,) = loaded(path)
    assert row.messages is not None
    assert [m["content"] for m in row.messages] == ["Look.", "left <image> right", "yes", "and now?"]
    blocks = with_blocks(row.messages)
    assert [part["type"] for part in blocks[1]["content"]] == ["text", "image", "text"]
    assert blocks[3]["content"] == [{"type": "text", "text": "and now?"}]
    (line,) = refusals(path, images=None)
    assert "data.images" in line or "holds images" in line
    chat[1]["content"] = "first"
    assert loaded(written(tmp_path, {"q": chat, "image": "a.png"}))[0].messages[3]["content"] == "<image>and now?"
    (line,) = refusals(written(tmp_path, {"q": "a <image> b <image>", "image": "a.png"}))
    assert "has 2 `<image>`, and the row 1 images" in line
    assert placed("a <image> b", 1) == "a <image> b"


def test_a_row_without_an_image_is_refused_or_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded())
    path = written(tmp_path, {"q": "x", "image": "a.png"}, {"q": "y", "image": None}, {"q": "z", "image": []})
    assert all("has no image" in line for line in refusals(path))
    assert len(loaded(path, on_null="drop")) == 1


def test_squares_are_held_out_and_say_nothing_where_dealt_out_anew() -> None:
    train, test = (list(squares(split, size=400, test_size=64)) for split in ("train", "test"))
    assert not {row["image"] for row in train} & {row["image"] for row in test}

    def white(row: dict[str, Any]) -> str:
        assert isinstance(row["image"], Blob)
        pixels = Image.open(BytesIO(row["image"].content)).convert("L")
        return str(sum(pixels.getpixel((x * 8, y * 8)) == 255 for x in range(4) for y in range(4)))

    assert all(white(row) == row["answer"] for row in train + test)
    shuffled = list(squares("train", size=400, shuffled=1))
    right = sum(white(row) == row["answer"] for row in shuffled)
    assert 70 < right < 130  # a quarter of 400
    assert [row["answer"] for row in shuffled] == [row["answer"] for row in train]
