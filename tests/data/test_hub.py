from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grpo_cli.data import sources
from grpo_cli.data.rows import load_rows
from grpo_cli.errors import DataError, RecipeError, SetupError
from tests.builders.data_builders import Data, Source, question


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A stand-in for the `datasets` library; put what `load_dataset` shall return or raise into the list."""
    answer: list[Any] = []
    library, errors = ModuleType("datasets"), ModuleType("datasets.exceptions")

    def load_dataset(name: str, config: str | None, *, split: str, revision: str | None, streaming: bool) -> Any:
        if isinstance(answer[0], Exception):
            raise answer[0]
        return Rows({**row, "split": split, "config": config} for row in answer[0])

    class Rows(list[Any]):
        features = None

    kinds = {name: type(name, (), {}) for name in ("Image", "List")}
    vars(library).update(load_dataset=load_dataset, disable_progress_bars=lambda: None, **kinds)
    vars(errors)["DatasetNotFoundError"] = type("DatasetNotFoundError", (FileNotFoundError,), {})
    monkeypatch.setitem(sys.modules, "datasets", library)
    monkeypatch.setitem(sys.modules, "datasets.exceptions", errors)
    monkeypatch.setattr(sources, "leave_hub", lambda: None)
    return answer


def load(which: Any = "train", **options: Any) -> Any:
    source = Source("hub:some/set", options=options)
    return load_rows(Data([source], eval=source), which)


def test_hub_rows_come_from_the_split_of_the_job(loader: list[Any]) -> None:
    loader.append([question()])
    assert load()[0].fields["split"] == "train"
    assert load("eval")[0].fields["split"] == "test"
    assert load("eval", split="validation", config="main")[0].fields["split"] == "validation"
    assert load()[0].place == "hub:some/set:row 1"


def test_no_network_is_a_matter_of_the_machine(loader: list[Any]) -> None:
    loader.append(ConnectionError("no route"))
    with pytest.raises(SetupError, match="the hub cannot be reached for `some/set`") as caught:
        load()
    assert "tasks:NAME" in caught.value.hint


@pytest.mark.parametrize("cached", ["", "datasets/some___set", "hub/datasets--some--set"])
def test_without_a_network_the_library_reads_its_caches_alone(
    loader: list[Any], cached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "leave_hub", lambda: sources.UNREACHABLE)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_DATASETS_CACHE", raising=False)
    (tmp_path / "datasets" / "another___set").mkdir(parents=True)
    loader.append([question()])
    if cached:
        (tmp_path / cached).mkdir(parents=True)
        assert load()[0].place == "hub:some/set:row 1"
    else:
        monkeypatch.setitem(sys.modules, "datasets", None)  # an import of it fails
        with pytest.raises(SetupError, match="the hub cannot be reached"):
            load()


def test_an_unknown_split_repeats_what_the_library_says(loader: list[Any]) -> None:
    loader.append(ValueError('Unknown split "dev". Should be one of ["train"].\nmore'))
    with pytest.raises(DataError, match=r'Unknown split "dev"\. Should be one of \["train"\]\.$'):
        load(split="dev")


def test_an_unknown_data_set_is_a_data_error(loader: list[Any]) -> None:
    loader.append(sys.modules["datasets.exceptions"].DatasetNotFoundError("gone"))
    with pytest.raises(DataError, match="no data set `some/set`"):
        load()


def test_an_unknown_option_has_a_near_one(loader: list[Any]) -> None:
    with pytest.raises(RecipeError, match="did you mean `split`"):
        load(splits="x")
