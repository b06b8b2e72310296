"""The page of the functions that a program may call, as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks

ROOT = Path(__file__).resolve().parents[2]


def test_the_blocks_of_the_page_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains a step of the quickstart on its CPU model, and measures the run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    known: dict[str, Any] = {}
    page = list(blocks(ROOT / "docs" / "python-api.md", "python"))
    assert len(page) == 4
    for block in page:
        exec(
            compile(block.text.replace('"train.steps=1"', '"train.steps=1", "warmup=null"'), "python-api.md", "exec"),
            known,
        )
    assert known["summary"]["status"] == "done"
    assert Path(known["summary"]["run"], "metrics.jsonl").is_file()
    assert len(known["found"].sampled.records) > 0
