"""The run folder: names, crash safety, resume."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.errors import DataError, SetupError, UsageError
from grpo_cli.run import lines
from grpo_cli.run.folder import RunFolder, new_name
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Outcome, error, right


def make(tmp_path: Path, name: str | None = "first") -> RunFolder:
    return RunFolder.create(tmp_path / "runs", name, "grpo: 1\n", {"seed": 7}, label="gsm8k")


def record(**values: Any) -> SampleRecord:
    defaults: dict[str, Any] = {"step": 1, "row": "r1", "group": 0, "prompt": "q", "completion": "a"}
    return SampleRecord(**(defaults | values))


def test_a_name_says_the_day_and_the_recipe() -> None:
    assert re.fullmatch(r"\d{4}-gsm8k-[a-z2-9]{4}", new_name("gsm8k"))
    assert re.fullmatch(r"\d{4}-a-b-[a-z2-9]{4}", new_name("../a b/"))
    assert re.fullmatch(r"\d{4}-run-[a-z2-9]{4}", new_name("///"))


NO_NAMES = [
    "a/b",
    "..",
    ".",
    " ",
    "a\0b",
    "",
    "-rf",
    "a ",
    " a",
    ".a",
    "a\\b",
    "/tmp/x",
    "\x1b[31mx",
    "a\nb",
    "a\u202eb",
    "é" * 101,
    "last",
]


def test_a_taken_name_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        make(tmp_path)


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_must_be_one_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        make(tmp_path, name)


def test_a_root_that_is_a_file_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(SetupError, match="is a file"):
        make(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission_to_write_is_a_setup_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SetupError, match="cannot be written"):
        make(tmp_path)


def test_a_folder_below_a_file_is_a_setup_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be written"):
        RunFolder.create(tmp_path / "file" / "runs", None, "", {})


def test_a_new_run_holds_its_recipe_and_manifest(tmp_path: Path) -> None:
    folder = RunFolder.open(make(tmp_path).path)
    assert folder.recipe_text == "grpo: 1\n"
    folder.update_manifest(status="done")
    manifest = folder.manifest()
    assert (manifest["seed"], manifest["run"], manifest["status"], manifest["schema"]) == (7, "first", "done", 1)


def test_opening_what_is_no_run_names_the_near_one(tmp_path: Path) -> None:
    folder = make(tmp_path)
    with pytest.raises(DataError) as caught:
        RunFolder.open(folder.path.with_name("frist"))
    assert "first" in caught.value.hint


def test_metrics_come_back_as_written_even_not_a_number(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.write_metrics({"step": 1, "loss": math.nan, "kl": None, "grad_norm": math.inf})
    (line,) = folder.metrics()
    assert math.isnan(line["loss"])
    assert line["grad_norm"] == math.inf
    assert line["kl"] is None
    assert json.loads((folder.path / "metrics.jsonl").read_text())["loss"] == "NaN"


def test_a_torn_last_line_is_skipped_and_then_cut(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.write_metrics({"step": 1})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "los')
    assert [m["step"] for m in folder.metrics()] == [1]
    folder.write_metrics({"step": 2})
    assert [m["step"] for m in folder.metrics()] == [1, 2]


def test_a_file_that_is_one_torn_line_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("x" * 100_000)
    lines.append(path, "{}\n")
    assert path.read_text() == "{}\n"


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder.path / "metrics.jsonl").write_text('{"step": 1}\nnonsense\n{"step": 3}\n')
    with pytest.raises(DataError) as caught:
        folder.metrics()
    assert caught.value.mistakes[0].place.endswith("metrics.jsonl:2")


def test_samples_come_back_as_written(tmp_path: Path) -> None:
    folder = make(tmp_path)
    records = [
        record(
            fields={"answer": "4", "prompt": "a column", "n": 3},
            verdicts={"math": right("4", "equal", 0.25)},
            outcome=Outcome.RIGHT,
            reward=1.0,
        ),
        record(
            verdicts={"math": error("crashed", "why")},
            outcome=Outcome.ERROR,
            completion="\ud800\x1b[2J",
            truncated=True,
        ),
    ]
    folder.write_samples(12, records[:1])
    folder.write_samples(12, records[1:])
    folder.write_samples(12, records[:1], split="eval")
    assert list(folder.samples(12)) == records
    assert list(folder.samples(12, "eval")) == records[:1]
    assert folder.steps() == [12]
    assert folder.sample_path(12).name == "step-000012.jsonl"


def test_a_rows_own_columns_lie_at_the_top_of_a_sample_line() -> None:
    line = record(fields={"answer": "4", "step": "mine"}).as_json()
    assert line["answer"] == "4"
    assert line["step"] == 1
    assert line["fields"] == {"step": "mine"}


def test_records_past_a_step_can_be_moved_aside_and_again(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for _ in range(2):
        for step in range(1, 6):
            if step > 2 or not folder.sample_path(step).exists():
                folder.write_metrics({"step": step})
                folder.write_samples(step, [record(step=step)])
        assert folder.move_aside(2) == 3
        assert [m["step"] for m in folder.metrics()] == [1, 2]
        assert folder.steps() == [1, 2]
    assert len((folder.path / "metrics.jsonl.abandoned").read_text().splitlines()) == 6
    assert sorted(p.name for p in (folder.path / "samples").glob("step-000003*")) == [
        "step-000003.jsonl.abandoned",
        "step-000003.jsonl.abandoned.2",
    ]


def test_samples_without_their_metric_line_are_moved_aside(tmp_path: Path) -> None:
    run = make(tmp_path)
    for split in ("train", "eval"):
        run.write_samples(2, [record(step=2)], split=split)
    run.write_metrics({"step": 2, "reward/total/mean": 0.5})  # killed before the line of the evaluation
    assert run.move_aside(after_step=2) == 0
    assert run.steps("train") == [2]
    assert run.steps("eval") == []
    assert (run.path / "eval/step-000002.jsonl.abandoned").is_file()


def test_a_run_appears_whole_so_a_start_that_died_leaves_its_name_free(tmp_path: Path) -> None:
    dead = tmp_path / "runs/.new/0123"  # what is left of it
    dead.mkdir(parents=True)
    (dead / "recipe.yaml").write_text("grpo: 1\n")
    assert make(tmp_path, "mine").manifest()["run"] == "mine"
    assert sorted(p.name for p in dead.parent.iterdir()) == ["0123"]


def test_a_sync_asks_the_disk_for_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, synced = make(tmp_path), list[str]()
    run.write_metrics({"step": 1})
    run.write_samples(1, [record(step=1)])
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").resolve().name))
    run.sync()
    run.sync()
    assert sorted(synced) == ["first", "metrics.jsonl", "samples", "step-000001.jsonl"]


def test_a_log_entry_steers_no_terminal_and_is_utf_8_whatever_it_holds(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.log("warn", "bad \udcff \x1b[31mred\nnext")
    assert "bad � ␛[31mred\n    next" in folder.log_path.read_bytes().decode()


def test_a_log_entry_of_several_lines_is_indented(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.log("warn", "first\nsecond")
    first, second = folder.log_path.read_text().splitlines()
    assert first.endswith("WARN   first")
    assert second == "    second"
