"""What counts as a changed recipe when a run is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe import Recipe, load
from grpo_cli.run import RunFolder
from grpo_cli.train.resume import differing_keys, find_run

OLD = "train: {lr: 1e-6}\nlaunch: {nodes: 2, node_rank: 0, rendezvous: 'a:1'}\n"


def test_changed_keys_are_named_by_their_path() -> None:
    assert differing_keys(OLD, OLD.replace("1e-6", "1e-5").replace("nodes: 2", "nodes: 3")) == [
        "launch.nodes",
        "train.lr",
    ]


def test_another_machine_or_another_allocation_is_no_change() -> None:
    assert differing_keys(OLD, OLD.replace("node_rank: 0", "node_rank: 1").replace("a:1", "b:1")) == []


def made(folder: Path, *sets: str) -> Recipe:
    file = folder / "r.yaml"
    file.write_text(
        'model: builtin:tiny\ndata: {train: a.jsonl, prompt: "{q}"}\nverify: {math: {}}\ntrain: {steps: 9}\n'
    )
    return load(file, sets)


def test_the_number_of_processes_may_differ_if_asked_for_and_the_strategy_may_not(tmp_path: Path) -> None:
    sharded = ("launch.strategy=fsdp2", "launch.gpus=2")
    recipe = made(tmp_path, *sharded)
    run = str(RunFolder.create(tmp_path / "runs", "run", recipe.resolved(), {}, label="r").path)
    more = made(tmp_path, "launch.strategy=fsdp2", "launch.gpus=4")
    assert str(find_run(more, run, anyway=True).path) == run
    with pytest.raises(RecipeError, match=r"differs from the run's in `launch.gpus`"):
        find_run(more, run)
    with pytest.raises(RecipeError, match=r"differs from the run's in `launch.strategy`"):
        find_run(made(tmp_path, "launch.gpus=2"), run, anyway=True)


def test_what_an_alarm_does_is_no_change() -> None:
    warns = OLD + "monitor: {on_alarm: warn}\n"
    assert differing_keys(OLD, warns) == []
    assert differing_keys(warns, OLD + "monitor: {on_alarm: {gold: pause}}\n") == []


def test_a_run_from_before_a_key_existed_is_taken_up(tmp_path: Path) -> None:
    recipe = made(tmp_path)
    now = recipe.resolved()
    before = "".join(
        line for line in now.splitlines(True) if line.split(":")[0].strip() not in ("compile", "strategy")
    )
    assert before != now and "compile" in now and "strategy" in now
    run = RunFolder.create(tmp_path / "runs", "run", before, {}, label="r")
    assert find_run(recipe, str(run.path)).path == run.path


def test_a_run_whose_recipe_no_longer_loads_is_refused_by_its_keys(tmp_path: Path) -> None:
    recipe = made(tmp_path)
    run = RunFolder.create(tmp_path / "runs", "run", recipe.resolved() + "gone: 1\n", {}, label="r")
    with pytest.raises(RecipeError, match="differs from the run's in `gone`"):
        find_run(recipe, str(run.path))
