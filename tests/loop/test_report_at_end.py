"""What a run leaves at its end besides itself: its report, and word to the webhook."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.display.test_webhook import listening
from tests.loop.recipes import ROOT, environment, small_recipe


def train(folder: Path, *sets: str) -> subprocess.CompletedProcess[str]:
    recipe = small_recipe(folder, steps=2)
    settings = [word for text in (f"run.dir={folder / 'runs'}", "eval.every=2", *sets) for word in ("--set", text)]
    return subprocess.run(
        [sys.executable, "-m", "grpo_cli", "train", str(recipe), *settings, "--json"],
        cwd=ROOT,
        env=environment(folder / "runs"),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_ends_with_its_report_and_the_webhook_hears_of_it(tmp_path: Path) -> None:
    with listening(200) as (url, got):
        done = train(tmp_path, f"run.webhook={url}")
    assert done.returncode == 0, done.stderr
    run = Path(json.loads(done.stdout)["run"])
    page = (run / "report.html").read_text()
    assert "held-out pass@1" in page and len(page) < 1_000_000
    told = [line for line in done.stderr.splitlines() if "report.html" in line]
    assert [line.split() for line in told] == [["report", str(run / "report.html")]]  # on the end card, once
    (said,) = got
    assert (said["event"], said["status"], said["run"]) == ("end", "done", run.name)
    assert isinstance(said["before"], float) and isinstance(said["after"], float)


def test_a_hook_that_is_down_and_a_report_that_is_not_wanted_cost_the_run_nothing(tmp_path: Path) -> None:
    done = train(tmp_path, "run.webhook=http://127.0.0.1:9/", "run.report=false")
    assert done.returncode == 0, done.stderr
    run = Path(json.loads(done.stdout)["run"])
    assert not (run / "report.html").exists()
    assert json.loads((run / "run.json").read_text())["status"] == "done"
    assert "did not receive `end`" in done.stderr + (run / "train.log").read_text()
