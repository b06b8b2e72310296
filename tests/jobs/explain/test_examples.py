"""The examples of keys, and every page that `grpo explain` has."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate.examples import NAMED
from grpo_cli.jobs.explain.subjects import describe_key as describe
from grpo_cli.jobs.explain.subjects import key_names
from grpo_cli.jobs.explain.subjects import render_key as render
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.reading.source import parse

PATHS = sorted(set(key_names().values()))
ONLY_NULL = "train.trl.parallelism_config"
"""TRL takes an object here, which YAML cannot say."""


@pytest.mark.parametrize("section", sorted({path.split(".")[0] for path in PATHS} - {"grpo"}))
def test_the_example_of_every_key_is_valid_on_top_of_the_quickstart(section: str, tmp_path: Path) -> None:
    for path in (p for p in PATHS if p.split(".")[0] == section):
        example = describe(path)["example"]
        file = tmp_path / f"{path}.yaml"
        file.write_text(example if path == "extends" else f"extends: quickstart\n{example}")
        load(file)


def test_an_example_says_the_key_and_a_value() -> None:
    for path in PATHS:
        said: object = parse(describe(path)["example"], path).data
        for name in (NAMED.get(name, name) for name in path.split(".")):
            said = said[0] if isinstance(said, list) else said
            assert isinstance(said, dict) and name in said, path
            said = said[name]
        assert said not in (None, "", {}, []) or path == ONLY_NULL, path


def test_an_example_stands_on_the_page_of_its_key() -> None:
    page = render(describe("train.ads.active"))
    assert "example  train: {select: ads, ads: {active: 4}}" in page.splitlines()
