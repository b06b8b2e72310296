"""The table of engines: the recipe's names are its names, and nothing else compares them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import grpo_cli
from grpo_cli.recipe.engines import ENGINES, EngineKind
from grpo_cli.recipe.sections.method import Sample
from grpo_cli.rollout import transformers_engine
from grpo_cli.rollout.make import make_engine
from tests.builders.rollout_models import tiny


@pytest.mark.parametrize("name", ENGINES)
def test_every_kind_is_a_name_of_the_recipe(name: str) -> None:
    assert Sample(engine=name).engine_kind is ENGINES[name]
    assert all(tried in ENGINES for tried in ENGINES[name].tries)


def test_another_name_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(ValidationError) as refused:
        Sample(engine="sglang")
    (error,) = refused.value.errors()
    assert error["type"] == "literal_error" and all(f"'{name}'" in error["msg"] for name in ENGINES)


def test_a_new_engine_is_one_entry_and_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(model: Any, end_ids: set[int], **options: Any) -> tuple[Any, set[int], Any]:
        return model, end_ids, options["max_rows"]

    # as a file of its own would have it
    monkeypatch.setattr(transformers_engine, "make_new", make, raising=False)
    kind = EngineKind("new", "grpo_cli.rollout.transformers_engine:make_new")
    monkeypatch.setitem(ENGINES, "new", kind)
    model: Any = tiny()
    assert make_engine("new", model, end_ids={1}, max_rows=3) == (model, {1}, 3)


def test_no_module_compares_the_name_of_an_engine() -> None:
    # `auto` is the name of other choices too
    names = "|".join(name for name in ENGINES if name != "auto")
    compared = re.compile(rf'(?:\bname *[!=]=|engine *(?:[!=]=|in|not in)) *\(?["\'](?:{names})["\']')
    source = Path(grpo_cli.__file__).parent
    found = [str(f.relative_to(source)) for f in source.rglob("*.py") if compared.search(f.read_text())]
    assert found == []
