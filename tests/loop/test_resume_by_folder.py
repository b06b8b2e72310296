"""The command that an interrupted run prints is enough to go on: no recipe has to be named again."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from grpo_cli.resilience.lock import hold
from tests.loop.program import grpo
from tests.loop.recipes import ROOT, small_recipe


def test_the_printed_command_goes_on_where_a_deadline_stopped(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=2)
    sets = ["--set", f"run.dir={tmp_path}/runs", "--set", "run.name=run", "--set", "run.deadline=0s"]
    first = grpo(tmp_path, "train", os.path.relpath(recipe, ROOT), *sets)
    assert first.returncode == 143, first.stderr
    printed = re.search(r"grpo (train --resume \S+)", first.stderr)
    assert printed, first.stderr
    with hold(tmp_path / "runs/run"):
        refused = grpo(tmp_path, *printed[1].split())
    assert refused.returncode == 2
    assert f"process {os.getpid()}" in refused.stderr and "trains in it right now" in refused.stderr
    second = grpo(tmp_path, *printed[1].split())
    assert second.returncode == 143, second.stderr
    metrics = [json.loads(line) for line in (tmp_path / "runs/run/metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics if "loss" in m] == [1, 2]


def test_neither_recipe_nor_run_is_a_usage_error(tmp_path: Path) -> None:
    done = grpo(tmp_path, "train")
    assert done.returncode == 2
    assert "error: no recipe" in done.stderr
    assert "Traceback" not in done.stderr
