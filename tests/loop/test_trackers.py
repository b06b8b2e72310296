"""What `run.track: [tensorboard]` wrote, read back from its files: the names, steps and values of `metrics.jsonl`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.loop.program import grpo
from tests.loop.recipes import small_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps with two updates each, tracked."""
    folder = tmp_path_factory.mktemp("tracked")
    recipe = small_recipe(folder, steps=3)
    more = ("--set", "run.track=[tensorboard]", "--set", f"run.dir={folder / 'runs'}", "--set", "eval.every=2")
    two = ("--set", "train.inner_epochs=2")
    done = grpo(folder / "runs", "train", str(recipe), *more, *two, "--json")
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["run"])


def read_back(run: Path) -> dict[tuple[str, int], float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {(name, e.step): e.value for name in events.Tags()["scalars"] for e in events.Scalars(name)}


def numbers(run: Path) -> dict[tuple[str, int], float]:
    lines: list[dict[str, Any]] = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        (key, line["step"]): float(value)
        for line in lines
        for key, value in line.items()
        if isinstance(value, int | float) and key != "step"
    }


def test_tensorboard_holds_every_number_of_the_run_under_its_name(run: Path) -> None:
    written, read = numbers(run), read_back(run)
    assert set(read) == set(written)
    assert all(math.isclose(read[key], written[key], rel_tol=1e-5, abs_tol=1e-6) for key in written)


def test_evaluations_before_during_and_after_training_are_in_it(run: Path) -> None:
    assert sorted(step for name, step in read_back(run) if name == "eval/pass@1") == [0, 2, 3]


def test_nothing_of_it_lies_in_the_folder_of_checkpoints(run: Path) -> None:
    assert not list((run / "checkpoints").rglob("events.*"))
