"""Keys that recipes had once: refused with the reason in a recipe, passed over in what is read of an old run."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.findings.run_data import flat_recipe
from grpo_cli.jobs.train.result import recipe_of_run
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.resilience.model_source import find_model_source
from grpo_cli.resilience.resume import find_run
from grpo_cli.reward.plan import from_recipe
from grpo_cli.run.folder import RunFolder

HEAD = 'model: builtin:tiny\ndata: {train: a.jsonl, prompt: "{q}"}\nverify: {math: {}}\ntrain: {steps: 9}\n'
WHY = "prefix reuse was removed in 0.3"


def written(folder: Path, more: str = "") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "r.yaml").write_text(HEAD + more)
    return str(folder / "r.yaml")


@pytest.mark.parametrize("value", ["{}", "{lenience: 1.3}", "true"])
def test_a_recipe_with_a_key_that_is_gone_is_refused_with_the_reason(tmp_path: Path, value: str) -> None:
    with pytest.raises(RecipeError, match="unknown key `reuse` in `sample`") as refused:
        load(written(tmp_path, f"sample: {{reuse: {value}}}\n"))
    assert WHY in refused.value.hint and ":5:10" in refused.value.mistakes[0].place


@pytest.mark.parametrize("flag", ["sample.reuse={}", "sample.reuse.lenience=2"])
def test_so_is_a_flag(tmp_path: Path, flag: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load(written(tmp_path), [flag])
    assert WHY in refused.value.hint and refused.value.mistakes[0].place == f"--set {flag}"


def test_a_stage_with_it_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as refused:
        load(written(tmp_path, "stages: [{name: a}, {name: b, sample: {reuse: {}}}]\n"))
    assert WHY in refused.value.hint


def test_null_is_no_key_so_that_recipes_of_old_runs_load(tmp_path: Path) -> None:
    plain = load(written(tmp_path))
    assert load(written(tmp_path, "sample: {reuse: null}\n")) == plain
    assert load(written(tmp_path), ["sample.reuse=null"]) == plain


def old_run(folder: Path, reuse: str) -> RunFolder:
    text = to_yaml(load(written(folder))).replace("sample:\n", f"sample:\n  reuse: {reuse}\n", 1)
    assert "reuse" in text
    run = RunFolder.create(folder / "runs", "run", text, {"base": str(folder)}, label="r")
    checkpoint = run.path / "checkpoints" / "step-000001"
    checkpoint.mkdir(parents=True)
    for name, content in {"config.json": "{}", "recipe.yaml": text, "grpo.json": "{}"}.items():
        (checkpoint / name).write_text(content)
    return run


def test_an_old_run_without_it_goes_on(tmp_path: Path) -> None:
    run = old_run(tmp_path, "null")
    recipe = recipe_of_run(str(run.path), [])[0]
    assert find_run(recipe, str(run.path)).path == run.path


def test_an_old_run_with_it_opens_and_does_not_go_on(tmp_path: Path) -> None:
    run = old_run(tmp_path, "{lenience: 1.3}")
    own = str(run.path / "recipe.yaml")
    plain = load(written(tmp_path))
    assert load(own, of_run=True).sample == plain.sample
    assert list(from_recipe(own).entries) == ["math"]
    assert flat_recipe(run.recipe_text)["sample.group"] == plain.sample.group
    checkpoint = str(run.path / "checkpoints" / "step-000001")
    assert find_model_source(checkpoint, None, []).recipe.sample == plain.sample
    with pytest.raises(RecipeError) as refused:
        recipe_of_run(str(run.path), [])
    assert WHY in refused.value.hint
    with pytest.raises(RecipeError, match=r"differs from the run's in `sample.reuse.lenience`"):
        find_run(plain, str(run.path))
