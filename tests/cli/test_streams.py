"""What commands print where a stream cannot spell everything, has a width, or closes early; and runs that lack a file."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.errors import DataError
from grpo_cli.text import spell_plainly, visible_lines
from tests.builders.report_runs import make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams")
    make_run(path / "runs", "one", hostile=False)
    return path


def grpo(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "grpo_cli", *words]
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | environ
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=120, env=env)


@pytest.mark.parametrize(
    "words", [("runs",), ("runs", "show", "one"), ("doctor", "one"), ("watch", "one", "--once"), ("explain", "math")]
)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_is_not_utf_8_gets_plain_signs(folder: Path, words: tuple[str, ...], encoding: str) -> None:
    found = grpo(folder, *words, PYTHONIOENCODING=encoding)
    assert (found.returncode, found.stderr) == (1 if words[0] == "doctor" else 0, b"")
    text = found.stdout.decode(encoding)
    assert not set(text) & set("→—▁█")


def test_an_error_steers_no_terminal_and_reaches_any_stream() -> None:
    told = DataError("bad \udcff \x1b[31mred", place="rows\x07.jsonl:1", hint="look\x1b]0;title")
    shown = visible_lines(told.render())
    assert shown == "error: rows␇.jsonl:1: bad � ␛[31mred\n\nhint: look␛]0;title"
    shown.encode()


def test_half_a_surrogate_pair_does_not_end_what_prints_it() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    spell_plainly(stream)
    stream.write("half \udcff → whole")
    assert stream.buffer.getvalue().decode() == "half \\udcff → whole"  # type: ignore[attr-defined]


def test_a_width_that_is_named_holds_in_a_pipe_too(folder: Path) -> None:
    lines = grpo(folder, "runs", COLUMNS="40").stdout.decode().splitlines()
    assert max(map(len, lines)) <= 40
    assert max(map(len, grpo(folder, "runs").stdout.decode().splitlines())) > 40
    frame = grpo(folder, "watch", "one", "--once", COLUMNS="45", LINES="10").stdout.decode().splitlines()
    assert max(map(len, frame[:8])) <= 45


@pytest.mark.parametrize("words", ["runs", "explain math", "schema", "watch one --once", "runs show one"])
def test_a_reader_that_leaves_early_is_no_error(folder: Path, words: str) -> None:
    shell = f"{sys.executable} -m grpo_cli {words} | head -n 1; echo code ${{PIPESTATUS[0]}}"
    found = subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, text=True, timeout=120)
    assert found.stderr == ""
    assert found.stdout.splitlines()[-1] == "code 0"


@pytest.mark.parametrize("words", ["schema", "runs --json", "verify lines.jsonl --math", "verify lines.jsonl --math -q --out /dev/full"])  # fmt: skip
def test_a_full_disk_is_one_sentence(folder: Path, words: str) -> None:
    (folder / "lines.jsonl").write_text('{"completion": "5", "answer": "5"}\n')
    command = [sys.executable, "-m", "grpo_cli", *words.split()]
    with open("/dev/full", "wb") as full:
        found = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert found.returncode == 4 and "Traceback" not in found.stderr
    assert found.stderr.rstrip().endswith("error: the output cannot be written: the disk is full")


def test_a_run_without_its_recipe_is_one_sentence(folder: Path) -> None:
    run = make_run(folder / "runs", "bare", hostile=False)
    (run.path / "recipe.yaml").unlink()
    for words in (("report", "bare"), ("doctor", "bare")):
        found = grpo(folder, *words)
        assert found.returncode == 3
        assert b"runs/bare/recipe.yaml: the run's recipe cannot be read: No such file" in found.stderr
    assert grpo(folder, "watch", "bare", "--once").returncode == 0


def test_a_status_that_no_run_can_have_is_told(folder: Path) -> None:
    found = grpo(folder, "runs", "--status", "dne")
    assert (found.returncode, found.stdout) == (2, b"")
    assert b"did you mean `done`?" in found.stderr
