"""A `~` in a recipe: a home, or a name that stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_cli.errors import UserError
from grpo_cli.recipe.reading.load import load
from grpo_cli.text import path_of
from tests.architecture.source import modules

NOBODY = "~no-such-user-0"


def test_a_home_is_found_and_that_of_nobody_stays_as_written() -> None:
    assert path_of("~/x") == Path(os.environ["HOME"]) / "x"
    assert path_of(f"{NOBODY}/x") == Path(f"{NOBODY}/x")


@pytest.mark.parametrize(
    "said",
    [
        f"data.train={NOBODY}/x.jsonl",
        f"model.path={NOBODY}",
        f"model.tokenizer={NOBODY}",
        f"model.chat_template={NOBODY}/t",
        f"run.dir={NOBODY}",
        f"monitor.canary={NOBODY}/c.jsonl",
        f"environment={NOBODY}/e.py:E",
    ],
)
def test_the_home_of_nobody_in_a_recipe_is_no_traceback(said: str) -> None:
    try:
        load("quickstart", [said])
    except UserError as err:
        assert NOBODY in err.render()


def test_no_module_expands_a_home_by_what_raises() -> None:
    assert [name for name, file in modules().items() if ".expanduser()" in file.read_text()] == []
