"""Evaluations between the first and the last may take fewer rows; the run and both ends are the same as without."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from grpo_cli.display.choose import SilentDisplay
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.reading.load import load
from grpo_cli.run.info import Metrics
from tests.loop.recipes import small_recipe
from tests.loop.test_wishes import lines_of


def test_a_short_evaluation_draws_the_curve_and_moves_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    lines: dict[str, list[Metrics]] = {}
    for name, sets in (("plain", ["eval.every=null"]), ("between", ["eval.every=1", "eval.between=3"])):
        sets += [f"run.dir={tmp_path}/runs", f"run.name={name}", "train.steps=3"]
        job = Job(
            load(str(small_recipe(tmp_path)), sets), label="r", base=tmp_path, display=SilentDisplay(io.StringIO())
        )
        lines[name] = lines_of(job.run().run)
    short = [m for m in lines["between"] if "eval/between" in m]
    assert [m["step"] for m in short] == [1, 2]
    assert all(m["eval/n"] == 3 and "eval/greedy" not in m and "eval/best" not in m for m in short)
    assert [m for m in lines["between"] if m not in short] == lines["plain"]
    assert [m["step"] for m in lines["plain"] if "eval/pass@1" in m] == [0, 3]
