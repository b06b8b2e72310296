"""What counts as a changed recipe when a run is resumed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_cli.errors import DataError, RecipeError
from grpo_cli.recipe.reading.dump import plain, to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.reading.source import shipped_recipes
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.resume import NEWEST, differences, find_run
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.typed import recipe_of_text

OLD = {"train": {"lr": 1e-6}, "launch": {"nodes": 2, "node_rank": 0, "rendezvous": "a:1"}}


def test_changed_keys_are_named_by_their_path() -> None:
    new = {"train": {"lr": 1e-5}, "launch": OLD["launch"] | {"nodes": 3}}
    assert differences(OLD, new) == {"launch.nodes": (2, 3), "train.lr": (1e-6, 1e-5)}


def test_another_machine_or_another_allocation_is_no_change() -> None:
    assert differences(OLD, OLD | {"launch": {"nodes": 2, "node_rank": 1, "rendezvous": "b:1"}}) == {}


def made(folder: Path, *sets: str) -> Recipe:
    file = folder / "r.yaml"
    file.write_text(
        'model: builtin:tiny\ndata: {train: a.jsonl, prompt: "{q}"}\nverify: {math: {}}\ntrain: {steps: 9}\n'
    )
    return load(file, sets)


def test_a_recipe_that_was_written_and_read_is_the_same(tmp_path: Path) -> None:
    odd = (
        "train.lr=1e-7",
        'verify.regex={pattern: "a\\x85b\\u2028"}',
        "data.where='1e3'",
        "stop.hang_s=1e300",
        "sample.stop=['2026-11-27', 'yes']",
    )
    for recipe in (made(tmp_path, *odd), *map(load, sorted(shipped_recipes()))):
        assert differences(recipe_of_text(to_yaml(recipe)), plain(recipe)) == {}


def test_the_number_of_processes_may_differ_if_asked_for_and_the_strategy_may_not(tmp_path: Path) -> None:
    sharded = ("launch.strategy=fsdp2", "launch.gpus=2")
    recipe = made(tmp_path, *sharded)
    run = str(RunFolder.create(tmp_path / "runs", "run", to_yaml(recipe), {}, label="r").path)
    more = made(tmp_path, "launch.strategy=fsdp2", "launch.gpus=4")
    assert str(find_run(more, run, anyway=True).path) == run
    with pytest.raises(RecipeError, match=r"differs from the run's in `launch.gpus`"):
        find_run(more, run)
    with pytest.raises(RecipeError, match=r"differs from the run's in `launch.strategy`"):
        find_run(made(tmp_path, "launch.gpus=2"), run, anyway=True)


def test_what_an_alarm_does_is_no_change() -> None:
    warns = OLD | {"monitor": {"on_alarm": "warn"}}
    assert differences(OLD, warns) == {}
    assert differences(warns, OLD | {"monitor": {"on_alarm": {"gold": "pause"}}}) == {}


def test_a_run_from_before_a_key_existed_is_taken_up(tmp_path: Path) -> None:
    recipe = made(tmp_path)
    now = to_yaml(recipe)
    before = "".join(line for line in now.splitlines(True) if line.split(":")[0].strip() not in ("ban", "strategy"))
    assert before != now and "ban" in now and "strategy" in now
    run = RunFolder.create(tmp_path / "runs", "run", before, {}, label="r")
    assert find_run(recipe, str(run.path)).path == run.path


def test_a_run_whose_recipe_no_longer_loads_is_refused_by_its_keys(tmp_path: Path) -> None:
    recipe = made(tmp_path)
    run = RunFolder.create(tmp_path / "runs", "run", to_yaml(recipe) + "gone: 1\n", {}, label="r")
    with pytest.raises(RecipeError, match="differs from the run's in `gone`"):
        find_run(recipe, str(run.path))


def test_a_bare_resume_of_a_changed_recipe_names_the_nearest_run_and_its_keys(tmp_path: Path) -> None:
    root = f"run.dir={tmp_path}/runs"
    for name, steps in (("near", 9), ("far", 8)):
        recipe = made(tmp_path, root, f"train.steps={steps}")
        RunFolder.create(tmp_path / "runs", name, to_yaml(recipe), {}, label="r")
    with pytest.raises(RecipeError, match=r"runs/near`, differs in `train.lr`$") as refused:
        find_run(made(tmp_path, root, "train.lr=3e-5"), NEWEST)
    assert f"grpo train --resume {tmp_path}/runs/near" in refused.value.hint
    with pytest.raises(RecipeError, match=r"differs in `run.keep`$") as refused:
        find_run(made(tmp_path, root, "run.keep=7"), NEWEST)
    assert "--resume-anyway" in refused.value.hint
    assert find_run(made(tmp_path, root, "run.keep=7"), NEWEST, anyway=True).name == "near"


def test_a_bare_resume_finds_a_run_that_was_only_given_a_name(tmp_path: Path) -> None:
    root = f"run.dir={tmp_path}/runs"
    named = made(tmp_path, root, "run.name=mine")
    RunFolder.create(tmp_path / "runs", "mine", to_yaml(named), {}, label="r")
    assert find_run(made(tmp_path, root), NEWEST).name == "mine"
    assert find_run(named, NEWEST).name == "mine"
    with pytest.raises(RecipeError, match=r"differs in `run.name`$"):
        find_run(made(tmp_path, root, "run.name=other"), NEWEST)
    with pytest.raises(RecipeError, match=r"differs in `run.name`, `train.seed`$"):
        find_run(made(tmp_path, root, "train.seed=5"), NEWEST)


def test_a_run_may_be_named_without_its_folder(tmp_path: Path) -> None:
    recipe = made(tmp_path, f"run.dir={tmp_path}/runs")
    run = RunFolder.create(tmp_path / "runs", "mine", to_yaml(recipe), {}, label="r")
    assert find_run(recipe, "mine").path == run.path


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a: [", None])
def test_a_run_whose_recipe_is_no_text_is_refused_by_name_and_passed_over_else(
    tmp_path: Path, content: bytes | None
) -> None:
    recipe = made(tmp_path, f"run.dir={tmp_path}/runs")
    good = RunFolder.create(tmp_path / "runs", "good", to_yaml(recipe), {}, label="r")
    bad = RunFolder.create(tmp_path / "runs", "bad", to_yaml(recipe), {}, label="r")
    os.utime(bad.path / "run.json", (2e9, 2e9))
    if content is None:
        (bad.path / "recipe.yaml").unlink()
    else:
        (bad.path / "recipe.yaml").write_bytes(content)
    assert find_run(recipe, NEWEST).path == good.path
    with pytest.raises(DataError, match="cannot be read") as refused:
        find_run(recipe, str(bad.path))
    assert refused.value.mistakes[0].place == str(bad.path / "recipe.yaml")
