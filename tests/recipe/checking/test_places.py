"""Names and places of runs that a recipe cannot have."""

from __future__ import annotations

import json

import pytest

from grpo_cli.errors import Exit, RecipeError, UsageError
from grpo_cli.jobs.sweep import make_plan
from grpo_cli.recipe.reading.load import load
from tests.run.test_folder import NO_NAMES


@pytest.mark.parametrize("name", [name for name in NO_NAMES if name])
def test_a_recipe_cannot_name_its_run_so(name: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load("quickstart", [f"run.name={json.dumps(name)}"])
    assert caught.value.code == Exit.USAGE
    assert "name a run" in str(caught.value) and "\x1b" not in caught.value.render()


@pytest.mark.parametrize("dir", ["-rf", "a\x1b[2Jb", "runs ", "a\0b", "a\nb", "runs/" + "x" * 256])
def test_a_recipe_cannot_keep_its_runs_there(dir: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load("quickstart", [f"run.dir={json.dumps(dir)}"])
    assert "cannot hold runs" in str(caught.value) and "\x1b" not in caught.value.render()


@pytest.mark.parametrize("name", ["first try", "läuft-1", "0.5+b_2", "x" * 200])
def test_other_names_may_be_given(name: str) -> None:
    assert load("quickstart", [f"run.name={json.dumps(name)}"]).run.name == name


@pytest.mark.parametrize("dir", ["../runs", "/tmp/my runs", "~/runs", "."])
def test_runs_may_lie_anywhere_else(dir: str) -> None:
    assert load("quickstart", [f"run.dir={json.dumps(dir)}"]).run.dir


@pytest.mark.parametrize("name", ["-rf", "..", ".", "a/b", "\x1b[2J", "x" * 201, "a\n"])
def test_a_sweep_cannot_be_named_so(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_plan("quickstart", [], 2, name)
    assert "cannot name a sweep" in str(caught.value) and "\x1b" not in caught.value.render()
