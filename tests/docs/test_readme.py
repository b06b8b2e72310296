"""The README: its size, its recipe and function, and its commands as they are printed; `tests/docs/run` cuts them short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate.llms import navigation
from grpo_cli.recipe.reading.load import load
from grpo_verifiers import build
from tests.docs.pages import README, ROOT, blocks, commands


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """A command line as the README prints it, in a folder; `grpo` and `make` are this environment's."""
    bin_folder = folder / ".bin"
    bin_folder.mkdir(exist_ok=True)
    grpo = bin_folder / "grpo"
    grpo.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m grpo_cli "$@"\n')
    grpo.chmod(0o755)
    env = os.environ | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}",
        "NO_COLOR": "1",
    }
    return subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True)


def own_task() -> list[str]:
    """The commands under "Your own task"."""
    return [line for block in blocks(README, "sh") if block.heading == "Your own task" for line in commands(block)]


def test_the_readme_is_short() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 180 and len(text.split()) <= 1100
    assert max(map(len, text.splitlines())) <= 300


def test_the_page_of_programs_judged_by_tests_is_at_most_400_words() -> None:
    assert len((ROOT / "docs" / "verifiers" / "code.md").read_text().split()) <= 400


def test_the_guide_is_fourteen_pages_of_at_most_16000_words() -> None:
    guide = dict(navigation())["Guide"]
    words = {place: len((ROOT / "docs" / place).read_text().split()) for _, place in guide}
    assert len(words) == 14
    assert sum(words.values()) <= 16_000, words


@pytest.mark.slow
def test_the_commands_for_a_task_of_ones_own_run_as_printed(tmp_path: Path) -> None:
    for line in own_task():
        done = shell(tmp_path, line)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    trained = sum(line.startswith("grpo train") for line in own_task())
    assert len(list((tmp_path / "runs").glob("*/report.html"))) == trained


@pytest.mark.slow
def test_make_train_trains_the_quickstart(tmp_path: Path) -> None:
    # `setup` is taken for made: its environment is the one that runs this
    venv = Path(sys.executable).parents[1]
    runs = f"ARGS=--set run.dir={tmp_path} --set run.name=first"
    done = subprocess.run(
        ["make", "-o", "setup", "train", f"VENV={venv}", runs],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "first" / "metrics.jsonl").read_text().splitlines()]
    scores = [line["eval/pass@1"] for line in lines if "eval/pass@1" in line]
    assert scores[0] < 0.5 < 0.7 < scores[-1]


def test_the_recipe_of_the_readme_loads_and_has_twelve_lines(tmp_path: Path) -> None:
    (block,) = blocks(README, "yaml")
    (tmp_path / "recipe.yaml").write_text(block.text)
    recipe = load(tmp_path / "recipe.yaml")
    assert list(recipe.verify) == ["math"] and len(block.text.splitlines()) == 12


def test_the_function_of_the_readme_does_what_it_says(tmp_path: Path) -> None:
    (block,) = blocks(README, "python")
    (tmp_path / "reward.py").write_text(block.text)
    made = build("python", function="reward.py:score", path=[str(tmp_path)], workers=1)
    scores = [made.verify(text, {"answer": "42"}).score for text in ("so 41, no, 42", "it is 24", "no idea", "43")]
    made.close()
    assert scores == [1.0, 0.5, 0.0, 0.0]
    body = block.text[block.text.index("def ") :]
    assert len(body.splitlines()) + 1 <= 8  # and the import
