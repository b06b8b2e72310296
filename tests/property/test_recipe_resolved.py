"""What a recipe resolves to is YAML that loads back equal, whatever texts and numbers it holds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grpo_cli.recipe.reading.dump import recipe_sha, to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe

TEXTS = st.text(min_size=1, max_size=30) | st.sampled_from(
    ["<<", "=", "~", "1e-6", "0o14", ".inf", "on", "null", "- a", "a: b", "#"]
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In a folder of its own, which is the current one: a source is also looked for there."""
    folder, before = tmp_path_factory.mktemp("resolved"), Path.cwd()
    os.chdir(folder)
    yield folder / "r.yaml"
    os.chdir(before)


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS, st.floats(1e-300, 1e300), st.integers(1, 10**6))
@example("a\u2028b\x85c\u202e\ufeff", "\x00\x1b\x7f\ud7ff", 1e-6, 8)
@example("x", "\x85", 1.0, 1)
@example("*", "~0", 1.0, 1)
@example("~0", "R*", 1.0, 1)
@example(".", "..", 1.0, 1)
@example("trailing \n\n", " leading\ttab", 5e-324, 1)
@example("\U0001f600 '\"\\", "%!&*|>", 1e22, 2)
def test_a_resolved_recipe_loads_back_equal(file: Path, path: str, text: str, lr: float, prompts: int) -> None:
    recipe = Recipe.model_validate(
        {
            "model": {"path": path},
            "data": {"train": [path, {"from": text}], "prompt": "{q}", "system": text, "id": None},
            "verify": {"math": {"weight": 0.5}},
            "sample": {"prompts": prompts},
            "train": {"steps": 1, "lr": lr, "trl": {"optim_args": text, "adam_beta1": lr}},
        }
    )
    file.write_text(to_yaml(recipe), encoding="utf-8", newline="")
    again = load(file)
    # what is there, such as `.`, is opened by its whole path and written as before
    assert again == recipe or (file.parent / path).exists()
    assert recipe_sha(again) == recipe_sha(recipe)
