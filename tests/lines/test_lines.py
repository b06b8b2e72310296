"""Lines of files, ours and others': where they end, what is too long, and what a broken packing says."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from grpo_cli.errors import DataError
from grpo_cli.jobs.verify.formats import read as read_input
from grpo_cli.lines import UNREADABLE, numbered, open_file, whole
from grpo_cli.run.lines import write_records
from grpo_cli.run.records import SampleRecord


def test_lines_keep_their_numbers_where_one_is_too_long_to_hold() -> None:
    text = b"\xef\xbb\xbfone\n" + b"x" * 40 + b"\n\nlast"
    assert list(numbered(io.BytesIO(text), 10)) == [(1, b"one\n"), (2, None), (3, b"\n"), (4, b"last")]
    long = b"x" * 10 + b"\n"
    assert list(numbered(io.BytesIO(long + b"y" * 11), 10)) == [(1, long), (2, None)]


def test_a_line_ends_at_its_newline_alone_and_a_torn_one_is_left() -> None:
    first = "a\u2028b\x0cc\n".encode()
    assert list(whole(io.BytesIO(first + b"torn"))) == [first]
    assert [raw for _, raw in numbered(io.BytesIO(first + b"torn"))] == [first, b"torn"]


@pytest.mark.parametrize("ending", [".gz", ".GZ", ".zst"])
def test_packed_files_are_read_and_broken_ones_are_named(tmp_path: Path, ending: str) -> None:
    data = b"".join(b'{"n": %d}\n' % n for n in range(5000))
    if ending == ".zst":
        packed = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    else:
        packed = gzip.compress(data)
    good = tmp_path / f"good.jsonl{ending}"
    good.write_bytes(packed)
    assert [raw for _, raw in read_input(str(good))] == data.splitlines()
    broken = {
        "torn": packed[: len(packed) // 2],
        "spoilt": packed[:40] + b"\xff" * 16 + packed[56:],
        "none": b"no packing",
    }
    for name, content in broken.items():
        bad = tmp_path / f"{name}.jsonl{ending}"
        bad.write_bytes(content)
        if name == "spoilt" and ending == ".zst":
            continue  # without a check sum this may read as other data
        with pytest.raises(UNREADABLE), open_file(bad, "bad") as stream:
            list(numbered(stream))
        with pytest.raises(DataError, match="cannot be read"):
            list(read_input(str(bad)))


def test_samples_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    write_records(path, [SampleRecord(1, "a", 0, "p", "old")])

    class Unwritable(SampleRecord):
        def as_json(self) -> dict[str, object]:
            raise RuntimeError

    before = path.read_bytes()
    with pytest.raises(RuntimeError):
        write_records(path, [SampleRecord(1, "b", 0, "p", "new"), Unwritable(1, "c", 0, "p", "new")])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["samples.jsonl"]


def test_every_frame_of_a_zstd_file_is_read(tmp_path: Path) -> None:
    pack = pytest.importorskip("zstandard").ZstdCompressor().compress
    path = tmp_path / "frames.jsonl.zst"
    path.write_bytes(pack(b"1\n") + pack(b"2\n" * 200_000) + pack(b"3\n"))
    found = [raw for _, raw in read_input(str(path))]
    assert (found[0], len(found), found[-1]) == (b"1", 200_002, b"3")
