"""`grpo probe` and the gate of `grpo train` through the whole path, on the tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.loop.program import grpo
from tests.loop.recipes import ROOT, environment, small_recipe

SMALL = ("--set", "gate.n=4", "--set", "gate.samples=4")


def test_train_probes_first_and_refuses_on_a_missed_bar(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    never = ("--set", "gate.pass@1=[0.99, 1.0]", "--set", f"run.dir={tmp_path / 'runs'}", "--json")
    done = grpo(tmp_path / "runs", "train", str(recipe), *SMALL, *never)
    assert done.returncode == 1, done.stderr
    run = Path(json.loads(done.stdout)["run"])
    found = json.loads((run / "probe.json").read_text())
    assert found["go"] is False and len((run / "probe.jsonl").read_text().splitlines()) == 16
    assert "no-go on pass@1" in done.stderr and "no-go" in json.loads((run / "run.json").read_text())["reason"]
    assert not (run / "samples").exists()


def test_probe_measures_what_the_gate_asks_for(tmp_path: Path) -> None:
    recipe, out = small_recipe(tmp_path), tmp_path / "samples.jsonl"
    bars = ("--set", "gate.signal=0", "--set", "gate.pass@1=[0, 1]", "--out", str(out), "--json")
    done = grpo(tmp_path / "runs", "probe", str(recipe), *SMALL, *bars)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["go"] is True and found["n"] == 4 and found["samples"] == 4 and found["group"] == 4
    assert len(out.read_text().splitlines()) == 16


def test_two_ranks_refuse_together_and_write_over_nothing(tmp_path: Path) -> None:
    recipe, out = small_recipe(tmp_path), tmp_path / "out"
    never = ("--set", "gate.pass@1=[0.99, 1.0]", "--set", f"run.dir={tmp_path / 'runs'}", "--json")
    two = ("--set", "launch.cpu_ranks=2", *SMALL, *never)
    words = [sys.executable, "-m", "grpo_cli", "train", str(recipe), *two]
    with out.open("w") as file:  # one file for both streams and the shell's own line, as in `(grpo …; echo $?) > log`
        command = ["sh", "-c", '"$@"; echo "code $?"', "sh", *words]
        subprocess.run(
            command, cwd=ROOT, env=environment(tmp_path / "runs"), stdout=file, stderr=subprocess.DEVNULL, check=False
        )
    summary, code = out.read_text().splitlines()
    assert json.loads(summary)["steps"] == 0 and code == "code 1"
