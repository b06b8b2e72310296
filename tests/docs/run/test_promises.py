"""What tiny runs of every command write has the keys that `docs/promises.json` lists, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.shapes import LISTING, listing, lost, shape
from tests.docs.test_metrics import alike, on_page

WHAT_TO_DO = "gone or renamed: docs/promises.md says what that takes"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the runs of now write."""
    return listing(tmp_path_factory.mktemp("shapes"))


@pytest.fixture(scope="module")
def promised() -> dict[str, Any]:
    """What is listed."""
    return dict(json.loads(LISTING.read_text()))


def test_no_key_of_json_is_lost(seen: dict[str, Any], promised: dict[str, Any]) -> None:
    gone = {name: lost(paths, seen["outputs"].get(name, {})) for name, paths in promised["outputs"].items()}
    assert {name: paths for name, paths in gone.items() if paths} == {}, WHAT_TO_DO


def test_every_new_key_of_json_is_listed(seen: dict[str, Any], promised: dict[str, Any]) -> None:
    new = {name: sorted(set(paths) - set(promised["outputs"].get(name, {}))) for name, paths in seen["outputs"].items()}
    assert {name: paths for name, paths in new.items() if paths} == {}, "`make promises` lists them"


def test_no_metric_is_lost_and_every_one_is_listed_and_on_its_page(
    seen: dict[str, Any], promised: dict[str, Any]
) -> None:
    assert sorted(set(promised["metrics"]) - set(seen["metrics"])) == [], WHAT_TO_DO
    assert sorted(set(seen["metrics"]) - set(promised["metrics"])) == [], "`make promises` lists them"
    assert [name for name in seen["metrics"] if not any(alike(name, one) for one in on_page())] == []


def test_a_key_that_is_gone_is_found_and_one_inside_of_what_is_empty_is_not(tmp_path: Path) -> None:
    before = shape({"schema": 1, "runs": [{"name": "a", "best": {"step": 1}}], "more": [{"x": 1}]})
    assert before == {"schema": "number", "runs[].name": "text", "runs[].best.step": "number", "more[].x": "number"}
    after = shape({"schema": 1, "runs": [{"title": "a", "best": None}], "more": []})
    assert lost(before, after) == ["runs[].name"]
