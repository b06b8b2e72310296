"""Every mistake a person can make in front of `grpo train`: one clear message, its exit code, no traceback, no run folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.loop.recipes import ROOT, environment

RECIPE = """\
grpo: 1
model: builtin:tiny
data: {train: rows.jsonl, prompt: "{question}"}
verify: {math: {}}
sample: {prompts: 2, group: 4, max_tokens: 8}
train: {steps: 2, lr: 1e-4}
"""
ROWS = '{"question": "1+1=?", "answer": "2"}\n{"question": "1+2=?", "answer": "3"}\n'


def grpo(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo_cli", "train", "recipe.yaml", "--set", f"run.dir={folder}/runs", *args]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120)


def write(folder: Path, recipe: str = RECIPE, rows: str | None = ROWS) -> None:
    (folder / "recipe.yaml").write_text(recipe)
    if rows is not None:
        (folder / "rows.jsonl").write_text(rows)


CASES = {
    "unknown key": (
        RECIPE.replace("group:", "groop:"),
        ROWS,
        2,
        ["recipe.yaml:5:22: unknown key `groop`", "did you mean `group`"],
    ),
    "wrong type": (
        RECIPE.replace("steps: 2", "steps: two"),
        ROWS,
        2,
        ["recipe.yaml:6:16", "`train.steps`", "whole number"],
    ),
    "out of range": (RECIPE.replace("lr: 1e-4", "lr: -1"), ROWS, 2, ["recipe.yaml:6:23", "`train.lr`", "above 0"]),
    "two at once": (
        RECIPE.replace("group:", "groop:").replace("lr: 1e-4", "lr: fast"),
        ROWS,
        2,
        ["unknown key `groop`", "`train.lr`", "2 errors, nothing was started"],
    ),
    "no verifier of that name": (RECIPE.replace("math: {}", "maths: {}"), ROWS, 2, ["maths", "did you mean `math`"]),
    "missing column": (RECIPE.replace("{question}", "{qestion}"), ROWS, 3, ["qestion", "did you mean `question`"]),
    "no such file": (RECIPE, None, 3, ["rows.jsonl"]),
    "empty file": (RECIPE, "", 3, ["`rows.jsonl` is empty"]),
    "broken line": (RECIPE, ROWS + '{"question": \n', 3, ["rows.jsonl:3"]),
    "unreadable gold": (RECIPE, ROWS.replace('"3"', '""'), 3, ["rows.jsonl:2", "`verify.math`"]),
    "less than one batch": (
        RECIPE.replace("prompts: 2", "prompts: 3"),
        ROWS,
        3,
        ["0 steps would run", "sample.prompts"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_one_clear_message_before_torch_is_loaded(tmp_path: Path, name: str) -> None:
    recipe, rows, code, said = CASES[name]
    write(tmp_path, recipe, rows)
    done = grpo(tmp_path, "--dry-run")
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert [text for text in said if text not in done.stderr] == [], done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_unknown_model_is_named_and_leaves_no_run(tmp_path: Path) -> None:
    write(tmp_path)
    done = grpo(tmp_path, "--set", "model=./nowhere")
    assert done.returncode == 4, done.stderr
    assert "error: no model folder `./nowhere`" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "runs").write_text("a file, not a folder")
    done = grpo(tmp_path)
    assert done.returncode == 4, done.stderr
    assert "runs" in done.stderr
    assert "`run.dir`" in done.stderr
    assert "Traceback" not in done.stderr


def test_completions_that_do_not_fit_the_context_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    done = grpo(tmp_path, "--set", "sample.max_tokens=4096")
    assert done.returncode == 4, done.stderr
    assert "`sample.max_tokens` is 4096, the model's context only 512 tokens" in done.stderr
    assert ROOT.name not in done.stderr
