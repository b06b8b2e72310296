"""`grpo init` writes what `grpo check` accepts at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.starters import DEFAULT_MODEL, TASKS, files

ROOT = Path(__file__).resolve().parents[2]


def grpo(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", *args], cwd=folder, env=env, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("task", TASKS)
def test_check_passes_on_what_init_writes(tmp_path: Path, task: str) -> None:
    assert grpo(tmp_path, "init", "new", "--task", task, "--model", "builtin:tiny").returncode == 0
    done = grpo(tmp_path, "check", "new/recipe.yaml", "--json", "--set", "sample.max_tokens=16")
    found = json.loads(done.stdout)
    levels = {one["check"]: one["level"] for one in found["checks"]}
    assert (done.returncode, done.stderr) == (0, "")
    no_golds = {"golds train", "golds eval"} if task in ("regex", "environment") else set()
    cut = {"episodes"} if task == "environment" else set()  # by the 16 tokens above
    noted = dict.fromkeys(no_golds | cut, "note")
    assert {name: level for name, level in levels.items() if level != "ok"} == noted


@pytest.mark.parametrize("task", TASKS)
def test_what_init_writes_for_a_model_of_small_context_fits_into_it(tmp_path: Path, task: str) -> None:
    assert grpo(tmp_path, "init", "mine", "--task", task, "--model", "builtin:tiny").returncode == 0
    done = grpo(tmp_path, "check", "mine/recipe.yaml", "--json")
    assert done.returncode == 0, done.stdout


def test_init_names_its_files_and_the_next_command(tmp_path: Path) -> None:
    done = grpo(tmp_path, "init", "--task", "custom")
    assert done.stdout.splitlines() == [
        "wrote eval.jsonl",
        "wrote recipe.yaml",
        "wrote reward.py",
        "wrote train.jsonl",
        "next: grpo check recipe.yaml",
    ]


def test_what_init_chooses_for_a_card_passes_check_on_it_offline(tmp_path: Path) -> None:
    said = grpo(tmp_path, "init", "mine", "--model", "Qwen/Qwen3-8B", "--gpu", "4090").stdout.splitlines()
    assert said[3].startswith("settings: a LoRA with recompute: selective, micro-batches of 4")
    assert "fits one RTX 4090" in said[4] and "±10%" in said[5] and "all weights" in said[6]
    assert said[-1] == "next: grpo check mine/recipe.yaml --gpu 4090"
    done = grpo(tmp_path, "check", "mine/recipe.yaml", "--gpu", "4090", "--json")
    checks = json.loads(done.stdout)["checks"]
    assert [one["check"] for one in checks if one["level"] in ("warn", "fail")] == ["model"]  # it is not on this disk
    (fit,) = [one for one in checks if one["check"] == "fit"]
    assert (fit["level"], fit["data"]["answer"], fit["data"]["micro_batch_that_fits"]) == ("ok", "fits", None)
    assert "prompts of 256 tokens are taken: theirs are unknown here" in fit["lines"]


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("--gpu", "4090", "--model", "Qwen/Qwen9-8B"), "the nearest known shapes are those of `Qwen3-8B`"),
        (("--gpu", "4090", "--model", "Qwen/Qwen2.5-32B"), "the smallest that does is one "),
        (("--gpu", "h1000"), "did you mean `H100`?"),
        (("--gpu", "4090", "--from", "x.yaml"), "leave one of the two out"),
    ],
)
def test_init_for_a_card_that_cannot_be_answered_writes_nothing(
    tmp_path: Path, args: tuple[str, ...], part: str
) -> None:
    done = grpo(tmp_path, "init", "mine", *args)
    assert done.returncode == 2 and part in done.stderr
    assert not (tmp_path / "mine").exists()


def test_init_writes_over_nothing_unless_told(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("mine")
    done = grpo(tmp_path, "init")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: `recipe.yaml` is there already\n\nhint: name another folder, or say --force\n"
    assert (tmp_path / "recipe.yaml").read_text() == "mine"
    assert not (tmp_path / "train.jsonl").exists()
    assert grpo(tmp_path, "init", "--force").returncode == 0
    assert (tmp_path / "recipe.yaml").read_text() != "mine"


def test_an_unknown_task_is_a_usage_error(tmp_path: Path) -> None:
    done = grpo(tmp_path, "init", "--task", "maths")
    assert done.returncode == 2
    assert "no task `maths`" in done.stderr


def test_a_file_in_the_way_of_the_folder_is_a_matter_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = grpo(tmp_path, "init", "taken")
    assert done.returncode == 4
    assert done.stderr.startswith("error: taken: cannot write: ")


@pytest.mark.parametrize("model", [DEFAULT_MODEL, "builtin:tiny"])
@pytest.mark.parametrize("task", TASKS)
def test_sample_rows_are_enough_for_a_step_and_none_is_held_out_twice(task: str, model: str) -> None:
    found = {
        name: path.read_text().splitlines() for name, path in files(task, model).items() if name.endswith(".jsonl")
    }
    assert len(found["train.jsonl"]) >= 8
    assert len(found["eval.jsonl"]) >= 4
    assert not set(found["train.jsonl"]) & set(found["eval.jsonl"])
