"""The four functions that a program may call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_cli.api import load_recipe, verify
from grpo_cli.errors import DataError, RecipeError, UsageError

ROOT = Path(__file__).resolve().parents[2]


def test_a_recipe_is_loaded_under_its_overrides() -> None:
    assert load_recipe("quickstart", ["train.steps=3"]).train.steps == 3
    with pytest.raises(RecipeError):
        load_recipe("quickstart", ["train.stepz=3"])


def test_completions_are_scored_in_order() -> None:
    rows = [{"answer": ["5", "five"]}, {"answer": "5"}, {"answer": "5"}]
    found = verify(["\\boxed{5}", "\\boxed{6}", "no idea"], rows, {"math": {}})
    assert [(one.outcome, one.reward) for one in found] == [("right", 1.0), ("wrong", 0.0), ("no_answer", 0.0)]
    assert found[0].verdicts["math"].answer == "5"


def test_mistakes_are_said_by_place() -> None:
    with pytest.raises(DataError) as caught:
        verify(["x", "y"], [{"answer": "5"}, {}], {"math": {}})
    assert [mistake.place for mistake in caught.value.mistakes] == ["rows[1]"]
    with pytest.raises(UsageError, match="unknown verifier"):
        verify(["x"], [{"answer": "5"}], {"maths": {}})
    with pytest.raises(ValueError, match="2 completions, 1 rows"):
        verify(["x", "y"], [{"answer": "5"}], {"math": {}})


def test_the_module_imports_nothing_heavy() -> None:
    code = "import sys, grpo_cli.api; print(sorted({'torch', 'trl', 'transformers', 'datasets'} & set(sys.modules)))"
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
