"""What a person asks for between two steps is done, and changes no number of the run."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.display.choose import SilentDisplay
from grpo_cli.display.frame.sample import SampleView
from grpo_cli.display.protocol import KeyRequests
from grpo_cli.jobs.train import job
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.reading.load import load
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Metrics
from tests.loop.recipes import environment, small_recipe

TIMES = ("time/", "eta_s", "tokens_per_s", "at", "eval/seconds")


class Pressing(SilentDisplay):
    """Presses keys when step 2 is over; goes on with a paused run when it has said so three times."""

    def __init__(self, keys: str) -> None:
        super().__init__(io.StringIO())
        self.keys, self.paused = keys, 0
        self.wishes = KeyRequests()

    def offer(self, wishes: KeyRequests) -> None:
        self.wishes = wishes

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        if metrics["step"] == 2:
            for key in self.keys:
                self.wishes.press(key)

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        if name.startswith("paused"):
            self.paused += 1
            if self.paused == 3:
                self.wishes.press("p")


def lines_of(run: RunFolder) -> list[dict[str, Any]]:
    return [{k: v for k, v in m.items() if not k.startswith(TIMES) and not k.endswith("_s")} for m in run.metrics()]


def test_pause_save_and_evaluate_leave_the_numbers_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(job, "PAUSED_S", 2.0)
    runs, displays = {}, {}
    for name, keys in (("plain", ""), ("asked", "pse")):
        recipe = load(str(small_recipe(tmp_path, save_every=100)), [f"run.dir={tmp_path}/runs", f"run.name={name}"])
        displays[name] = Pressing(keys)
        runs[name] = Job(recipe, label="r", base=tmp_path, display=displays[name]).run().run
    plain, asked = lines_of(runs["plain"]), lines_of(runs["asked"])
    extra = [m for m in asked if m["step"] == 2 and "eval/pass@1" in m]
    assert len(extra) == 1
    # `eval/best` compares with the evaluations before it
    without = [{k: v for k, v in m.items() if k != "eval/best"} for m in asked if m is not extra[0]]
    assert without == [{k: v for k, v in m.items() if k != "eval/best"} for m in plain]
    assert displays["asked"].paused == 3
    saved = {name: {p.name for p in (run.path / "checkpoints").glob("step-*")} for name, run in runs.items()}
    assert saved["asked"] == saved["plain"] | {"step-000002"}
    after = next(m for m in runs["asked"].metrics() if m["step"] == 3 and "time/step" in m)
    assert after["time/step"] < 3 * job.PAUSED_S, "paused time was counted to a step"


RANK = """
import os, sys
from tests.loop.test_wishes import *
job.PAUSED_S = 2.0
recipe, runs, keys = sys.argv[1:]
is_main = os.environ["RANK"] == "0"
display = Pressing(keys) if is_main else SilentDisplay(io.StringIO())
sets = [f"run.dir={runs}", "run.name=" + (keys or "plain"), "launch.cpu_ranks=2"]
Job(load(recipe, sets), label="r", base=Path(recipe).parent, display=display).run()
assert not is_main or display.paused == (3 if keys else 0), display.paused
"""


def test_two_ranks_pause_save_and_evaluate_together(tmp_path: Path) -> None:
    recipe, script = small_recipe(tmp_path, save_every=100), tmp_path / "rank.py"
    script.write_text(RANK)
    runs: dict[str, RunFolder] = {}
    for keys in ("", "pse"):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        words = [*torchrun, str(script), str(recipe), str(tmp_path / "runs"), keys]
        done = subprocess.run(words, env=environment(tmp_path / "runs"), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        runs[keys] = RunFolder.open(tmp_path / "runs" / (keys or "plain"))
    plain, asked = lines_of(runs[""]), lines_of(runs["pse"])
    extra = [m for m in asked if m["step"] == 2 and "eval/pass@1" in m]
    assert len(extra) == 1
    without = [{k: v for k, v in m.items() if k != "eval/best"} for m in asked if m is not extra[0]]
    assert without == [{k: v for k, v in m.items() if k != "eval/best"} for m in plain]
    assert (runs["pse"].path / "checkpoints" / "step-000002").is_dir()
    after = next(m for m in runs["pse"].metrics() if m["step"] == 3 and "time/step" in m)
    assert after["time/step"] < 6.0, "paused time was counted to a step"
