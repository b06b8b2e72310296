"""Tasksets of `verifiers` 0.4: what is refused without the package; with it, in the Python of `GRPO_TASKSET_PYTHON`, its own tasksets."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.sources import refuse_missing
from grpo_cli.environments.pool import interpreter_of
from grpo_cli.environments.taskset import Taskset, listed
from grpo_cli.errors import DataError, RecipeError
from grpo_cli.recipe.sections.inputs import Source

PYTHON = os.environ.get("GRPO_TASKSET_PYTHON", "")
"""A Python with `verifiers` 0.4; `make test-tasksets` makes one."""
needs_package = pytest.mark.skipif(not PYTHON, reason="GRPO_TASKSET_PYTHON is not set")
HERE = Path(__file__).parent


def test_a_python_without_the_package_is_refused_with_what_to_do() -> None:
    with pytest.raises(RecipeError, match=r"has no package `verifiers`: pip install 'verifiers>=0\.4'"):
        list(listed("echo", "train", {"interpreter": sys.executable}, None, "data.train"))
    # looking for a source starts nothing
    refuse_missing(Source.model_validate({"from": "verifiers:echo"}), None, "data.train")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sise": 3}, "unknown option `sise`.*did you mean `size`"),
        ({"split": "dev"}, "is train, test or all"),
        ({"size": 0}, "a whole number from 1"),
        ({"interpreter": "no/such/python"}, "there is no program `no/such/python`"),
    ],
)
def test_options_of_the_source_are_looked_at_first(options: dict[str, Any], why: str) -> None:
    with pytest.raises(RecipeError, match=why):
        list(listed("echo", "train", options, None, "data.train"))


def test_an_interpreter_is_a_python_as_new_as_ours_and_a_link_to_one_stays(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    assert interpreter_of("python", tmp_path) == sys.executable
    (tmp_path / "py").symlink_to(sys.executable)
    assert interpreter_of("py", tmp_path) == str(tmp_path / "py")
    (tmp_path / "old").write_text("#!/bin/sh\necho False\n")
    (tmp_path / "old").chmod(0o755)
    with pytest.raises(RecipeError, match=r"`old` is no Python from 3\.11 on"):
        interpreter_of("old", tmp_path)


@needs_package
@pytest.mark.parametrize(
    ("spec", "options", "why"),
    [
        ("no_such", {}, "not found"),
        ("my_taskset", {"id": "my_duel"}, "has the seats left, right, and one is played by the policy"),
        ("my_taskset", {"agent": {"harness": {"id": "codex"}}}, "needs a container"),
        ("my_taskset", {"taskset": {"words": 3}}, "words"),
        ("my_images", {}, "runs in the image"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(spec: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(RecipeError, match=why):
        list(listed(spec, "train", {"interpreter": PYTHON, "options": options}, HERE / "tasksets", "data.train"))


@needs_package
def test_tasks_are_rows_and_an_eighth_is_held_out_by_its_key() -> None:
    def of(split: Any, **more: Any) -> list[dict[str, Any]]:
        return list(listed("my_taskset", split, {"interpreter": PYTHON, **more}, HERE / "tasksets", "data.train"))

    with pytest.raises(DataError, match="have no end"):
        of("train")
    train, test, every = (of(split, size=200) for split in ("train", "test", "all"))
    keys = [[row["task_key"] for row in rows] for rows in (train, test, every)]
    assert not set(keys[0]) & set(keys[1]) and sorted(keys[0] + keys[1]) == sorted(keys[2])
    assert 12 <= len(test) <= 40 and every[3]["prompt"] == "Say w3." and every[3]["answer"] == "w3"


@needs_package
def test_another_task_at_a_rows_place_is_refused(tmp_path: Path) -> None:
    taskset = Taskset("my_taskset", PYTHON, {}, base=HERE / "tasksets", max_turns=2)
    taskset.start()
    try:
        with pytest.raises(RecipeError, match="another one than when the rows were listed"):
            taskset.launch({"task_number": 3, "task_key": "other"}, {"GRPO_SEED": "1"}, tmp_path / "e")
    finally:
        taskset.close()
