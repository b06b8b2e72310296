"""`grpo watch`: the frame from files alone, while they grow, are moved aside, and when the run is over."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.display.frame.frame import frame_lines
from grpo_cli.display.watch import RunWatcher, card_of, follow_lines
from grpo_cli.errors import DataError
from grpo_cli.run.find import find_run
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import info_of
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import right, wrong
from tests.builders.display_state import step_metrics

ROOT = Path(__file__).resolve().parents[3]
RECIPE = """grpo: 1
model: {path: some/model}
sample: {prompts: 16, group: 8, max_tokens: 512}
train: {steps: 500, seed: 17}
verify:
  math: {kind: math, weight: 1.0, primary: true}
  format: {kind: regex, weight: 0.1}
"""


def make_run(tmp_path: Path, steps: int = 3, name: str = "first") -> RunFolder:
    folder = RunFolder.create(
        tmp_path / "runs", name, RECIPE, {"argv": ["grpo", "train", "gsm8k.yaml"], "device": "cpu", "seed": 17}
    )
    for step in range(1, steps + 1):
        add_step(folder, step)
    return folder


def add_step(folder: RunFolder, step: int) -> None:
    common = {"step": step, "row": "3317", "group": 0, "prompt": "Natalia sold clips", "fields": {"answer": "72"}}
    one = SampleRecord(
        **common,
        completion=f"step {step} \x1b[2J[/think]",
        verdicts={"math": right("72")},
        outcome=right().outcome,
        reward=1.0,
        advantage=1.0,
    )  # type: ignore[arg-type]
    other = SampleRecord(
        **common, completion="24", verdicts={"math": wrong("24")}, outcome=wrong().outcome, reward=0.0, advantage=-1.0
    )  # type: ignore[arg-type]
    folder.write_samples(step, [one, other])
    folder.write_metrics(step_metrics(step))


def text_of(watching: RunWatcher) -> str:
    return "\n".join(line.plain for line in frame_lines(watching.state.snapshot(watching.began + 5), 100, 30))


def test_the_frame_follows_the_files(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    watching = RunWatcher(folder)
    assert [m["step"] for m in watching.look()] == [1, 2, 3]
    assert "step 3/500" in text_of(watching)
    assert "step 3 ␛[2J[/think]" in text_of(watching)
    assert watching.look() == []
    add_step(folder, 4)
    folder.log("warn", "4 of 16 groups all right  hint: consider harder prompts")
    assert [m["step"] for m in watching.look()] == [4]
    assert "step 4/500" in text_of(watching)
    assert "all right: consider harder prompts" in text_of(watching)


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    folder = make_run(tmp_path, 1)
    watching = RunWatcher(folder)
    watching.look()
    line = json.dumps(step_metrics(2)) + "\n"
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(line[:50])
        file.flush()
        assert watching.look() == []
        file.write(line[50:])
    assert [m["step"] for m in watching.look()] == [2]


def test_a_resume_that_moves_steps_aside_is_seen(tmp_path: Path) -> None:
    folder = make_run(tmp_path, 5)
    watching = RunWatcher(folder)
    watching.look()
    folder.move_aside(2)
    watching.look()
    assert "step 2/500" in text_of(watching)
    assert watching.state.snapshot(0).curves.of("step") == [1, 2]


def test_what_the_recipe_says_is_shown(tmp_path: Path) -> None:
    info = info_of(make_run(tmp_path, 0))
    assert (info.steps, info.prompts, info.group, info.max_tokens, info.seed) == (500, 16, 8, 512, 17)
    assert [(s.name, s.weight, s.primary) for s in info.sources] == [("math", 1.0, True), ("format", 0.1, False)]
    assert info.recipe == "gsm8k.yaml"


@pytest.mark.parametrize("recipe", ["", "[]", "{broken", "train: 3\nverify: {math: null}\n"])
def test_an_odd_recipe_does_not_keep_a_run_from_being_watched(tmp_path: Path, recipe: str) -> None:
    folder = make_run(tmp_path)
    (folder.path / "recipe.yaml").write_text(recipe)
    watching = RunWatcher(folder)
    watching.look()
    assert "step 3/" in text_of(watching)


def test_lines_end_with_the_card_when_the_run_is_over(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    folder.write_metrics({"step": 3, "eval/pass@1": 0.5, "eval/pass@1/half": 0.1, "eval/n": 64})
    folder.update_manifest(status="done")
    out = io.StringIO()
    follow_lines(RunWatcher(folder), out, as_json=False, ascii=False)
    assert out.getvalue().count(" INFO  step ") == 3
    assert "eval step 3  pass@1 0.500 ±.100" in out.getvalue()
    assert " done  3 steps in " in out.getvalue()
    lines = io.StringIO()
    follow_lines(RunWatcher(folder), lines, as_json=True, ascii=False)
    assert [json.loads(line)["step"] for line in lines.getvalue().splitlines()] == [1, 2, 3, 3]


def test_the_card_of_a_run_that_died_says_stopped(tmp_path: Path) -> None:
    assert card_of(make_run(tmp_path)).status == "stopped"


def test_a_run_is_found_by_path_by_name_and_as_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path, 1, "first")
    newest = make_run(tmp_path, 1, "second")
    os.utime(newest.path / "metrics.jsonl", (2e9, 2e9))
    monkeypatch.chdir(tmp_path)
    assert find_run("first").name == find_run("runs/first").name == "first"
    assert find_run("last").name == "second"
    with pytest.raises(DataError) as caught:
        find_run("secnd")
    assert caught.value.hint == "did you mean `second`?"


def grpo(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}",
        "PYTHONUTF8": "1",
        "FORCE_COLOR": "",
        "NO_COLOR": "",
    }
    return subprocess.run(
        [sys.executable, "-m", "grpo_cli", *args],
        cwd=cwd,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_once_prints_the_frame_into_a_pipe(tmp_path: Path) -> None:
    make_run(tmp_path)
    done = grpo("watch", "first", "--once", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "step 3/500" in done.stdout
    assert "\x1b" not in done.stdout
    assert grpo("watch", "first", "--once", "--ascii", cwd=tmp_path).stdout.isascii()
    lines = grpo("watch", "first", "--once", "--display", "json", cwd=tmp_path).stdout.splitlines()
    assert [json.loads(line)["step"] for line in lines] == [
        m["step"] for m in RunFolder.open(tmp_path / "runs" / "first").metrics()
    ]


def test_no_run_is_one_message_and_exit_code_three(tmp_path: Path) -> None:
    done = grpo("watch", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: no run under `runs`\n\nhint: `grpo train RECIPE` makes one\n"


def test_the_end_card_says_where_the_time_went_as_the_run_itself_does(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    spent = {"imports": 0, "setup": 1.5, "generate": 4, "update": 3, "evaluate": 2, "monitor": 0.5, "verify": 1}
    folder.update_manifest(status="done", phases={name: {"wall_s": s, "cpu_s": s} for name, s in spent.items()})
    seconds = card_of(folder).seconds
    assert dict(seconds) == {"setup": 1.5, "evaluate": 2, "generate": 4, "update": 3, "verify": 1}
    assert list(seconds)[:2] == ["setup", "evaluate"]
